"""Owner of the optional SIGTERM note. Off unless `install(note_sigterm=True)`.

Why optional: the only way for a library to see a signal without a thread of its own is a Python handler, and that
changes a server that relied on the default: death would wait until the main thread runs Python code again, which it
does not while it loads or computes in C. `oomguard run` sees SIGTERM on its way to the server and needs no handler.
The alternatives are worse: `signal.set_wakeup_fd` belongs to asyncio, `signalfd` and `sigwait` need the signal
blocked in every thread.

When on: the handler notes, then does what would have been done without it. It calls the Python handler that it
found, or, where that was the default, restores the default and sends the signal again, so that the wait status is
"killed by SIGTERM". A handler that the server sets later simply wins.
"""

from __future__ import annotations

import os
import signal

from guard.fence import fence, troubles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from guard.keeper import Keeper


def install(keeper: Keeper) -> Callable[[], None]:
    """Chain a handler where there is a default or a Python one; an ignored signal stays ignored."""
    previous = signal.getsignal(signal.SIGTERM)
    if previous is None or previous == signal.SIG_IGN:
        troubles.add("sigterm", "not noted: the signal is ignored or handled outside Python")
        return lambda: None

    def handler(number: int, frame: FrameType | None) -> None:
        box = keeper.box
        if box is not None:
            with fence("sigterm"):
                box.sigterm()
        if callable(previous):
            previous(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def undo() -> None:
        if signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, previous)

    signal.signal(signal.SIGTERM, handler)
    return undo
