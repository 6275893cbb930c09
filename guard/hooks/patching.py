"""Replace an attribute by a wrapper, and give it back only if it is still ours.

A wrapper is a plain function with the original's name, signature and `__wrapped__`, so it binds as a method and
pickles by name: a process without the guard unpickles the original.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

from guard.fence import fence, swallowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.keeper import Keeper

    Begin = Callable[[tuple[Any, ...], dict[str, Any]], "Finishable | None"]


class Patches:
    """What one hook has replaced."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:  # noqa: ANN401 - any module or class
        """Set an attribute of a module or class; what the owner's own `__dict__` held comes back on `undo`."""
        self._done.append((owner, name, vars(owner).get(name, _ABSENT), value))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Give everything back, last first; what somebody replaced since stays as it is."""
        while self._done:
            owner, name, before, ours = self._done.pop()
            if vars(owner).get(name) is not ours:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


_ABSENT = object()


class Finishable(Protocol):
    """A mark of work in flight."""

    def finish(self) -> None:
        """End the mark."""


def marked(keeper: Keeper, original: Callable[..., Any], where: str, begin: Begin) -> Callable[..., Any]:
    """Wrap a function: `begin(args, kwargs)` opens a mark (or gives None), the original runs once, the mark ends.

    `begin` is asked only while a mark would be kept. It and the mark are fenced (by hand: this runs once a tensor); the
    original is not. Its result and exception pass through.
    """

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the original's own signature
        mark: Finishable | None = None
        if keeper.box is not None or keeper.waiting:
            try:
                mark = begin(args, kwargs)
            except Exception as error:
                if not swallowed(where, error):
                    raise
        if mark is None:
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            with fence(where):
                mark.finish()

    return wrapper
