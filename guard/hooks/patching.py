"""Replace an attribute by a wrapper, and give it back only if it is still ours.

A wrapper is a plain function with the original's name, signature and `__wrapped__`, so it binds as a method and
pickles by name: a process without the guard unpickles the original.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Protocol

from guard.fence import fence, swallowed
from guard.refusal import WouldNotFit

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.keeper import Keeper

    Begin = Callable[[tuple[Any, ...], dict[str, Any]], "Finishable | None"]


class Patches:
    """What one hook has replaced."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any, tuple[str, ...]]] = []

    def set(self, owner: Any, name: str, value: Any, also: tuple[str, ...] = ()) -> None:  # noqa: ANN401 - any module or class
        """Set an attribute of a module or class; what the owner's own `__dict__` held comes back on `undo`.

        `also` names packages that re-export it. One that is not imported yet takes what it finds later.
        """
        before = vars(owner).get(name, _ABSENT)
        self._done.append((owner, name, before, value, also))
        setattr(owner, name, value)
        _exchange(also, name, before, value)

    def undo(self) -> None:
        """Give everything back, last first; what somebody replaced since stays as it is."""
        while self._done:
            owner, name, before, ours, also = self._done.pop()
            if before is not _ABSENT:
                _exchange(also, name, ours, before)
            if vars(owner).get(name) is not ours:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def _exchange(packages: tuple[str, ...], name: str, old: object, new: object) -> None:
    for package in packages:
        module: Any = sys.modules.get(package)
        if module is not None and vars(module).get(name) is old:
            setattr(module, name, new)


_ABSENT = object()


class Finishable(Protocol):
    """A mark of work in flight."""

    def finish(self) -> None:
        """End the mark."""


def marked(
    keeper: Keeper,
    original: Callable[..., Any],
    where: str,
    begin: Begin,
    returned: Callable[[Any, Any], None] | None = None,
) -> Callable[..., Any]:
    """Wrap a function: `begin(args, kwargs)` opens a mark (or gives None), the original runs once, the mark ends.

    `begin` is asked only while a mark would be kept. It and the mark are fenced (by hand: this runs once a tensor); the
    original is not. Its result and exception pass through. `returned(mark, result)` is told of a result before the mark
    ends. The one exception of ours that passes is `WouldNotFit`, which the host has asked for.
    """

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the original's own signature
        mark: Finishable | None = None
        if keeper.box is not None or keeper.waiting:
            try:
                mark = begin(args, kwargs)
            except WouldNotFit:
                raise
            except Exception as error:
                if not swallowed(where, error):
                    raise
        if mark is None:
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
            if returned is not None:
                with fence(where):
                    returned(mark, result)
            return result
        finally:
            with fence(where):
                mark.finish()

    return wrapper
