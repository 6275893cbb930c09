"""The one fence around our own code inside somebody else's process.

Rules
    * The original call of a hook never runs inside a fence; only our work before and after it does.
    * `Exception` only. KeyboardInterrupt, SystemExit, CancelledError and every other BaseException belong to the host
      and pass through. (A fence that swallows CancelledError makes tasks that cannot be cancelled.)
    * Production records and goes on; with OOMGUARD_FENCE=raise, as in tests, the error comes out.
    * Text is kept, never the exception: an exception holds frames, and frames hold tensors.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

SWITCH = "OOMGUARD_FENCE"
_KEPT = 16
_TEXT_LIMIT = 300


class Troubles:
    """What went wrong inside the guard: how often, and the last few in words."""

    __slots__ = ("count", "latest")

    def __init__(self) -> None:
        self.count = 0
        self.latest: list[str] = []

    def add(self, where: str, what: object) -> None:
        """Keep one trouble as text; an exception is named by its type, whatever its `__str__` does."""
        name = f"{type(what).__name__}: " if isinstance(what, BaseException) else ""
        try:
            text = f"{name}{what}"
        except Exception as broken:  # noqa: BLE001 - a callback of the host may raise anything
            text = f"{name}(no text: __str__ raised {type(broken).__name__})"
        self.count += 1
        self.latest.append(f"{where}: {text[:_TEXT_LIMIT]}")
        del self.latest[:-_KEPT]


troubles = Troubles()


def swallowed(where: str, exc: BaseException) -> bool:
    """Remember an error of our own; true if it shall go no further. For hot paths, where `fence` costs too much."""
    troubles.add(where, exc)
    return os.environ.get(SWITCH) != "raise"


class fence:  # noqa: N801 - reads as a statement: `with fence("excepthook"):`
    """Keep an `Exception` of our own code away from the host."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> bool:
        """Swallow an `Exception` and remember it; let everything else pass."""
        return isinstance(exc, Exception) and swallowed(self._where, exc)
