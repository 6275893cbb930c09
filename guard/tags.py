"""What the server is doing right now in its own words: a request's name, set per task or thread.

A context variable, so asyncio tasks and threads do not mix; threads of torch's own (backward) do not inherit it. It is
made at first use, as importing this package imports nothing.
"""

from __future__ import annotations

from guard.fence import swallowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextvars import ContextVar, Token
    from types import TracebackType

_LIMIT = 120
_made: list[ContextVar[str]] = []


class tag:  # noqa: N801 - reads as a statement: `with guard.tag("request 42"):`
    """Name what runs inside, so that a memory failure in it says so: `with guard.tag("request 42"): ...`.

    The text goes to logs and to the black box: a name or a number, never a prompt. The first 120 characters are kept.
    """

    __slots__ = ("_text", "_token")

    def __init__(self, text: str) -> None:
        try:
            self._text = str(text)[:_LIMIT]
        except Exception as error:
            if not swallowed("tag", error):
                raise
            self._text = ""
        self._token: Token[str] | None = None

    def __enter__(self) -> None:
        """Set it in this task or thread."""
        self._token = _variable().set(self._text)

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        """Take it back; an exception passes."""
        token, self._token = self._token, None
        if token is not None:
            try:
                _variable().reset(token)
            except ValueError:  # a generator was closed in another context than it was opened in
                _variable().set("")


def current() -> dict[str, str | int | float]:
    """Give the tag of this task or thread as a field, or nothing."""
    text = _made[0].get() if _made else ""
    return {"tag": text} if text else {}


def _variable() -> ContextVar[str]:
    if not _made:
        from contextvars import ContextVar

        _made.append(ContextVar("oomguard_tag", default=""))  # of two threads' the first one counts
    return _made[0]
