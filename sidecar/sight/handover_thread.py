"""Looking at descriptors beside the event loop: one daemon thread a hand-over.

Not a pool: a descriptor whose file system never answers would keep a pool's thread for ever, starve other clients and
hold up the exit of the sidecar. Hand-overs are rare, and their number is bounded by the server's connections.
"""

from __future__ import annotations

import asyncio
import os
import threading

from guard.link.protocol import Hello
from sidecar.sight.handover_check import Checked, Peer, RejectedError, check, close_process
from sidecar.sight.levels import close_levels


def check_in_thread(hello: Hello, descriptors: list[int], peer: Peer) -> asyncio.Future[Checked]:
    """Run `check`. Who cancels the future need not close anything; who takes its result owns that.

    Raises (in the future, or at once where no thread can start):
        RejectedError: the hand-over is not what it says.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Checked] = loop.create_future()

    def work() -> None:
        outcome = _outcome(hello, descriptors, peer)
        try:
            loop.call_soon_threadsafe(_deliver, future, outcome)
        except RuntimeError:  # the loop is closed
            _discard(outcome)

    try:
        threading.Thread(target=work, name="handover-check", daemon=True).start()
    except RuntimeError as exc:
        close_all(descriptors)
        raise RejectedError(f"the descriptors cannot be looked at: {exc}") from exc
    return future


def close_checked(checked: Checked) -> None:
    """Close everything of a hand-over that nobody wants."""
    close_levels(checked.levels)
    close_process(checked.process)


def close_all(descriptors: list[int]) -> None:
    """Close plain descriptors."""
    for fd in descriptors:
        os.close(fd)


def _outcome(hello: Hello, descriptors: list[int], peer: Peer) -> Checked | RejectedError:
    try:
        return check(hello, descriptors, peer)
    except RejectedError as exc:
        return exc
    except OSError as exc:
        return RejectedError(f"the descriptors cannot be looked at: {exc}")


def _deliver(future: asyncio.Future[Checked], outcome: Checked | RejectedError) -> None:
    """In the loop: hand the outcome to who waits, or close it where nobody does."""
    if future.cancelled():
        _discard(outcome)
    elif isinstance(outcome, Checked):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)


def _discard(outcome: Checked | RejectedError) -> None:
    if isinstance(outcome, Checked):
        close_checked(outcome)
