"""Threads of the guard inside somebody else's process."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol

    class Startable(Protocol):
        """A thread, or what starts one."""

        def start(self) -> None:
            """Start it."""


def start_unseen(thread: Startable) -> bool:
    """Start a thread with every signal blocked in it; false where none can start (the interpreter ends).

    A signal to the process goes to any thread that does not block it. A server that blocks SIGTERM in its threads
    and takes it with `sigwait` would otherwise die of it, in our thread.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    except RuntimeError:
        return False
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return True
