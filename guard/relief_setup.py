"""Putting callbacks and built-in actions in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.callbacks import check_cooldown
from guard.fence import troubles
from guard.pressure import LEVELS
from guard.relief import COOLDOWN_SECONDS, LEAST_COOLDOWN_SECONDS
from guard.relief_actions import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.keeper import Keeper
    from guard.link.protocol import Pressure


def _cooldown(seconds: float | None) -> float:
    return COOLDOWN_SECONDS if seconds is None else max(LEAST_COOLDOWN_SECONDS, seconds)


def listen(
    keeper: Keeper, callback: Callable[[Pressure], object], level: str | None, cooldown_seconds: float | None
) -> None:
    """Put a callback of the host in place."""
    name = f"{getattr(callback, '__module__', '')}.{getattr(callback, '__qualname__', type(callback).__qualname__)}"
    keeper.relieving().add(callback, name, level, _cooldown(cooldown_seconds))
    keeper.watch_pressure()


def add_built_in(keeper: Keeper, names: Sequence[str], level: str | None, cooldown_seconds: float | None) -> None:
    """Put built-in actions in place; no name is all of them.

    Raises:
        ValueError: there is no such action or level, or the cooldown is no number of seconds.
    """
    check_cooldown(cooldown_seconds)
    unknown = [name for name in names if not isinstance(name, str) or name not in BUILT_IN]
    if unknown:
        raise ValueError(f"no such relief: {', '.join(map(str, unknown))}; there is {', '.join(BUILT_IN)}")
    if level is not None and level not in LEVELS[1:]:
        raise ValueError(f"a level is one of {', '.join(LEVELS[1:])}, not {level!r}")
    seconds = _cooldown(cooldown_seconds)
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
