"""Owner of `run_forever` of asyncio's loop and of uvloop's: the main thread's says once a second that it turns.

The sidecar tells by it a server whose loop is late under reclaim from one whose loop stands still. One timer a second,
as long as the loop runs; the loop's own methods do everything else. OOMGUARD_LOOP=off leaves it out.

Beats: `asyncio` ticks; `asyncio.begun` and `asyncio.ended` tell whether a loop runs at all, as a server may run one for
its start alone. Only those of the main thread: the loop of a helper in another thread would go on for a serving loop
that stands still. Loops that run already, and those of other libraries, are not seen; `guard.beat("loop")` is for them.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from guard.fence import fence
from guard.hooks.patching import Patches
from guard.switches import is_off

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import ModuleType

    from guard.box.writer import BoxWriter
    from guard.keeper import Keeper

SWITCH = "OOMGUARD_LOOP"
TICK_SECONDS = 1.0
_LOOPS = {"asyncio.selector_events": "BaseSelectorEventLoop", "uvloop": "Loop"}
"""The class of each module. uvloop's takes `run_forever` from a compiled one, and looks it up on itself each time."""


class _Turning:
    """One run of a loop."""

    __slots__ = ("_keeper", "_loop", "_timer", "_told")

    def __init__(self, keeper: Keeper, loop: asyncio.AbstractEventLoop) -> None:
        self._keeper = keeper
        self._loop = loop
        self._told: BoxWriter | None = None  # the box that knows of this run; a fork has another one
        self._timer: asyncio.Handle = loop.call_soon(self._tick)

    def _tick(self) -> None:
        with fence("loop"):
            box = self._keeper.box
            if box is not None:
                if box is not self._told:
                    box.beat("asyncio.begun")
                    self._told = box
                box.beat("asyncio")
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def end(self) -> None:
        """Take the timer out, and say that no loop runs."""
        self._timer.cancel()
        box = self._keeper.box
        if box is not None and box is self._told:
            box.beat("asyncio.ended")


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the method of the class; it is asked for at each run, so loops made before are covered too."""
    if is_off(SWITCH):
        return _nothing
    owner = getattr(module, _LOOPS[module.__name__])
    original = owner.run_forever

    @functools.wraps(original)
    def run_forever(self: asyncio.AbstractEventLoop) -> None:
        turning: _Turning | None = None
        with fence("loop"):
            serves = keeper.session is not None and threading.current_thread() is threading.main_thread()
            if serves and not self.is_closed() and not self.is_running():
                turning = _Turning(keeper, self)
        try:
            original(self)
        finally:
            if turning is not None:
                with fence("loop"):
                    turning.end()

    patches = Patches()
    patches.set(owner, "run_forever", run_forever)
    return patches.undo


def _nothing() -> None:
    """Undo nothing."""
