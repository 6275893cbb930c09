"""What the guard holds in one process: the black box, the link to the sidecar, and who this process is.

States of a `Keeper`
    idle      nothing installed; every mark is a no-op.
    waiting   hooks are in place, nothing is opened yet. So a Python helper that `oomguard run` reaches by environment
              costs a few milliseconds, no file and no thread. The first mark, failure or model library wakes it.
    awake     box and link were tried once; either may be missing, and then `troubles` says why.

The light half is here; whatever needs `guard.model` (dataclasses, 10 ms) or a socket is imported on waking.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

from guard.fence import fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.box.writer import BoxWriter, OperationSlot
    from guard.failure import Caught
    from guard.link.client import LinkClient
    from guard.model import Failure

SWITCH = "OOMGUARD"
PARENT = "OOMGUARD_PARENT"
MAIN = "OOMGUARD_MAIN"
_QUIET_SECONDS = 1.0


def switched_off() -> bool:
    """Whether the off switch is set, OOMGUARD=off."""
    return os.environ.get(SWITCH, "").strip().lower() == "off"


class Keeper:
    """The one per process. Attributes are read by hooks without the lock; the lock guards waking and going idle."""

    __slots__ = (
        "_last_quiet_s",
        "_lock",
        "_parent_before",
        "box",
        "exit_status",
        "link",
        "parent_session",
        "pressure_callbacks",
        "session",
        "waiting",
    )

    def __init__(self) -> None:
        self._lock = _thread.RLock()
        self._last_quiet_s = float("-inf")
        self._parent_before: str | None = None
        self.box: BoxWriter | None = None
        self.link: LinkClient | None = None
        self.waiting = False
        # Invariant: a session is set exactly while the guard is installed.
        self.session: str | None = None
        self.parent_session: str | None = None
        self.exit_status: int | None = None
        self.pressure_callbacks: list[Callable[[object], object]] = []

    def arm(self) -> None:
        """Take a session and wait. The process that `oomguard run` started takes the one its runner reports."""
        parent = os.environ.get(PARENT)
        if parent and os.environ.get(MAIN) == str(os.getpid()):
            self.session, self.parent_session = parent, None
        else:
            self.session, self.parent_session = os.urandom(8).hex(), parent
        self._parent_before = parent
        os.environ[PARENT] = self.session
        self.waiting = True

    def disarm(self) -> None:
        """Go idle: close the link, keep the box file for the sidecar, give the environment back."""
        with self._lock:
            box, link, session = self.box, self.link, self.session
            self.box = self.link = self.session = None
            self.waiting = False
        if session is not None and os.environ.get(PARENT) == session:
            if self._parent_before is None:
                del os.environ[PARENT]
            else:
                os.environ[PARENT] = self._parent_before
        if link is not None:
            link.close()
        if box is not None:
            box.close()

    def wake(self) -> BoxWriter | None:
        """Open box and link if that was not tried yet. Never raises an `Exception`."""
        with self._lock:
            if self.waiting:
                self.waiting = False
                with fence("wake"):
                    self._open()
            return self.box

    def _open(self) -> None:
        from guard.opening import identify, open_box, open_link

        if self.session is None:
            return
        who = identify(self.session, self.parent_session)
        self.box = open_box(who)
        self.link = open_link(who, self)

    def renew(self) -> None:
        """In a forked child: leave the parent's box alone and become a process of its own.

        Runs in `os.register_at_fork`; another thread of the parent may have held any lock at the fork, so the lock is
        replaced, not taken.
        """
        self._lock = _thread.RLock()
        if self.session is None:
            return
        was_awake, box, link = not self.waiting, self.box, self.link
        self.box = self.link = None
        self.exit_status = None
        with fence("fork"):
            if box is not None:
                box.abandon()
            if link is not None:
                link.abandon()
        self.session, self.parent_session = os.urandom(8).hex(), self.session
        os.environ[PARENT] = self.session
        self.waiting = True
        if was_awake:
            self.wake()

    def begin(
        self,
        kind: str,
        label: str,
        *,
        file: str | None = None,
        bytes_expected: int | None = None,
        at_most_seconds: float | None = None,
    ) -> OperationSlot | None:
        """Mark an operation in flight; None where there is no box. Never raises an `Exception`."""
        box = self.box
        if box is None:
            box = self.wake() if self.waiting else None
            if box is None:
                return None
        with fence("begin"):
            from guard.model import OperationKind

            return box.begin(
                OperationKind(kind), label, file=file, bytes_expected=bytes_expected, at_most_seconds=at_most_seconds
            )
        return None

    def caught(self, exc: BaseException, kind: str, *, fatal: bool, thread: str) -> None:
        """Record an exception that a hook saw. Memory failures and fatal ones also leave the process as text."""
        if self.session is None:
            return
        with fence("failure"):
            from guard.failure import Caught, memory_kind

            now = time.monotonic()
            memory = memory_kind(exc) is not None
            if self.waiting and not memory:
                return  # a helper that never held a model: its failures are its parent's business
            loud = fatal or memory
            if not loud and now - self._last_quiet_s < _QUIET_SECONDS:
                return  # a server that drops a thousand connections a second must not pay for a thousand records
            self._last_quiet_s = now
            self._record(
                exc, Caught(kind=kind, fatal=fatal, at_wall_s=time.time(), at_monotonic_s=now, thread=thread), loud=loud
            )

    def _record(self, exc: BaseException, caught: Caught, *, loud: bool) -> None:
        from guard.failure import failure_of

        failure = failure_of(exc, caught)
        box = self.wake()
        if box is not None:
            with fence("box"):
                box.fail(failure)
        if loud:
            self._tell(failure)

    def _tell(self, failure: Failure) -> None:
        from guard.failure import json_line, termination_text
        from guard.lastwords import write_stderr, write_termination_log

        about = {"pid": os.getpid(), "session": self.session, "command": " ".join(sys.argv[:3])[:200]}
        line = json_line(failure, about)
        with fence("stderr"):
            write_stderr(line)
        if failure.fatal:
            with fence("termination-log"):
                write_termination_log(termination_text(failure, line))

    def pressed(self, notice: object) -> None:
        """Pass a pressure notice on to the callbacks of the host, each fenced. Called in the thread of the link."""
        for callback in tuple(self.pressure_callbacks):
            with fence("on_pressure"):
                callback(notice)


keeper = Keeper()
