"""Putting callbacks and built-in actions in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.fence import troubles
from guard.pressure import LEVELS
from guard.relief import COOLDOWN_SECONDS
from guard.relief_actions import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.keeper import Keeper
    from guard.link.protocol import Pressure


def listen(
    keeper: Keeper, callback: Callable[[Pressure], object], level: str | None, cooldown_seconds: float | None
) -> None:
    """Put a callback of the host in place."""
    name = f"{getattr(callback, '__module__', '')}.{getattr(callback, '__qualname__', type(callback).__qualname__)}"
    seconds = COOLDOWN_SECONDS if cooldown_seconds is None else cooldown_seconds
    keeper.relieving().add(callback, name, level, seconds)
    keeper.watch_pressure()


def add_built_in(keeper: Keeper, names: Sequence[str], level: str | None, cooldown_seconds: float | None) -> None:
    """Put built-in actions in place; no name is all of them.

    Raises:
        ValueError: there is no such action or level.
    """
    unknown = [name for name in names if name not in BUILT_IN]
    if unknown:
        raise ValueError(f"no such relief: {', '.join(unknown)}; there is {', '.join(BUILT_IN)}")
    if level is not None and level not in LEVELS[1:]:
        raise ValueError(f"a level is one of {', '.join(LEVELS[1:])}, not {level!r}")
    seconds = COOLDOWN_SECONDS if cooldown_seconds is None else cooldown_seconds
    for name in names or tuple(BUILT_IN):
        action, from_level = BUILT_IN[name]
        keeper.relieving().add(action, name, level or from_level, seconds)
    keeper.watch_pressure()


def from_environment(keeper: Keeper, text: str) -> None:
    """Put in place what OOMGUARD_RELIEF lists, separated by commas; "all" is all. What is wrong shows in `status()`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    try:
        add_built_in(keeper, () if names == ["all"] else names, None, None)
    except ValueError as error:
        troubles.add("OOMGUARD_RELIEF", error)
