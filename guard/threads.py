"""Threads of the guard inside somebody else's process."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol

    class Startable(Protocol):
        """A thread, or what starts one."""

        def start(self) -> None:
            """Start it."""


importing = threading.Lock()
"""Held while a thread of ours imports. `guard.hooks.fork` takes it for the time of a fork: a module that another thread
is importing at that moment could never be imported in the child (its lock has no owner any more, Python 3.11)."""


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
