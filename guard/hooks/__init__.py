"""One file a hook, one owner each. Nothing here runs before `guard.install()`.

A hook is a module with `install(keeper) -> undo`. It keeps what it found, calls it last and exactly once, outside the
fence, and its `undo` restores it only where nobody else has put something on top since. A hook whose wrapper stays
behind under a foreign one does nothing once the keeper is idle.

One hook that cannot be installed does not take others with it: it is said in `status()`.
"""

from __future__ import annotations

import importlib

from guard.fence import fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.keeper import Keeper

HOOKS = ("excepthook", "thread_excepthook", "native_faults", "exits", "fork", "libraries")
_states: dict[str, str] = {}


def install_all(keeper: Keeper, undo: list[tuple[str, Callable[[], None]]], *, note_sigterm: bool) -> None:
    """Install every hook; append how to undo each, in order."""
    for name in (*HOOKS, "sigterm") if note_sigterm else HOOKS:
        _states[name] = "failed"
        with fence(f"hook {name}"):
            module = importlib.import_module(f"{__name__}.{name}")
            undo.append((name, module.install(keeper)))
            _states[name] = "installed"


def states() -> dict[str, str]:
    """Say of every hook that was tried whether it is installed, waiting for its library, or failed."""
    return dict(_states)


def set_state(name: str, state: str) -> None:
    """Let a hook that depends on a library say where it stands."""
    _states[name] = state


__all__ = ["HOOKS", "install_all", "set_state", "states"]
