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
import time

from guard.admission import requests
from guard.fence import fence, swallowed
from guard.place import NAME_VARIABLE, model_name, own_command
from guard.switches import is_off

TYPE_CHECKING = False
if TYPE_CHECKING:
    from guard.box.writer import BoxWriter, OperationSlot
    from guard.link.client import LinkClient
    from guard.link.protocol import Pressure, Relieved
    from guard.pressure_watch import PressureWatch
    from guard.relief import Relief
    from guard.telling import Teller

SWITCH = "OOMGUARD"
PARENT = "OOMGUARD_PARENT"
MAIN = "OOMGUARD_MAIN"
RELIEF = "OOMGUARD_RELIEF"
_QUIET_SECONDS = 1.0
_SIDECAR_HOLDS_SECONDS = 30.0
"""How long the sidecar's word on pressure counts. It says it again every ten seconds while it is so."""
_MOST_FILES = 512


def switched_off() -> bool:
    """Whether the off switch is set, OOMGUARD=off."""
    return is_off(SWITCH)


class Keeper:
    """The one per process. Hooks read attributes without the lock; it guards installing, waking and going idle."""

    __slots__ = (
        "_last_quiet_s",
        "_named",
        "_parent_before",
        "_teller",
        "box",
        "exit_status",
        "link",
        "loaded_files",
        "lock",
        "parent_session",
        "relief",
        "session",
        "waiting",
        "watch",
    )

    def __init__(self) -> None:
        self.lock = _thread.RLock()
        self._last_quiet_s = float("-inf")
        self._parent_before: str | None = None
        self._named: str | None = None
        self._teller: Teller | None = None
        self.box: BoxWriter | None = None
        self.link: LinkClient | None = None
        self.waiting = False
        # Invariant: a session is set exactly while the guard is installed.
        self.session: str | None = None
        self.parent_session: str | None = None
        self.exit_status: int | None = None
        self.relief: Relief | None = None
        self.watch: PressureWatch | None = None
        self.loaded_files: dict[str, str] = {}
        """Checkpoints that were loaded, as the host named them, and absolute; bounded. Relief drops their pages."""

    def arm(self) -> None:
        """Take a session and wait. The process that `oomguard run` started takes the one its runner reports.

        Children inherit the model's name, as they are processes of the same model whatever their command is.
        """
        parent = os.environ.get(PARENT)
        if parent and os.environ.get(MAIN) == str(os.getpid()):
            self.session, self.parent_session = parent, None
        else:
            self.session, self.parent_session = os.urandom(8).hex(), parent
        self._parent_before = parent
        os.environ[PARENT] = self.session
        if not os.environ.get(NAME_VARIABLE):
            self._named = os.environ[NAME_VARIABLE] = model_name(own_command())
        self.waiting = True

    def disarm(self) -> None:
        """Go idle: close the link, keep the box file for the sidecar, give the environment back."""
        with self.lock:
            box, link, watch, session = self.box, self.link, self.watch, self.session
            self.box = self.link = self.watch = self.session = self._teller = None
            self.waiting = False
        if watch is not None:
            watch.close()
        if self.relief is not None:
            self.relief.calm()
        named, self._named = self._named, None
        if named is not None and os.environ.get(NAME_VARIABLE) == named:
            del os.environ[NAME_VARIABLE]
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
        with self.lock:
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
        if os.environ.get(RELIEF) and not is_off(RELIEF):
            from guard.relief_setup import from_environment

            from_environment(self, os.environ[RELIEF])
        self.watch_pressure()

    def renew(self) -> None:
        """In a forked child: leave the parent's box alone and become a process of its own.

        Runs in `os.register_at_fork`; another thread of the parent may have held any lock at the fork, so the lock is
        replaced, not taken.
        """
        self.lock = _thread.RLock()
        requests.renew()
        if self.relief is not None:
            self.relief.renew()
        if self.session is None:
            return
        was_awake, box, link, watch = not self.waiting, self.box, self.link, self.watch
        self.box = self.link = self.watch = self._teller = None
        self.exit_status = None
        with fence("fork"):
            if watch is not None:
                watch.abandon()
            if box is not None:
                from guard.hooks import native_faults

                native_faults.forget()
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
        try:
            if file is not None and kind == "load":
                self._remember(file)
            return box.begin(kind, label, file=file, bytes_expected=bytes_expected, at_most_seconds=at_most_seconds)
        except Exception as error:
            if not swallowed("begin", error):
                raise
            return None

    def _remember(self, file: str) -> None:
        """Keep that a file was loaded, and where it lies now: the working directory may change."""
        if file not in self.loaded_files and len(self.loaded_files) < _MOST_FILES:
            with fence("loaded file"):  # without a working directory a relative path, or a label, lies nowhere
                self.loaded_files[file] = os.path.abspath(file)  # noqa: PTH100 - no path object of a host's name

    def caught(self, exc: BaseException, kind: str, *, fatal: bool, thread: str) -> None:
        """Record an exception that a hook saw. Memory failures and fatal ones also leave the process as text."""
        if self.session is None:
            return
        with fence("failure"):
            from guard.failure import Caught, failure_of, memory_kind

            now = time.monotonic()
            memory = memory_kind(exc) is not None
            if self.waiting and not memory:
                return  # a helper that never held a model: its failures are its parent's business
            loud = fatal or memory
            if not loud and now - self._last_quiet_s < _QUIET_SECONDS:
                return  # a server that drops a thousand connections a second must not pay for a thousand records
            self._last_quiet_s = now
            caught = Caught(kind=kind, fatal=fatal, at_wall_s=time.time(), at_monotonic_s=now, thread=thread)
            self.teller().caught(self.wake(), failure_of(exc, caught), loud=loud)

    def teller(self) -> Teller:
        """Give the one that tells the failures of this process."""
        from guard.telling import Teller

        with self.lock:
            if self._teller is None:
                self._teller = Teller(self.session or "")
            return self._teller

    @property
    def working(self) -> bool:
        """Whether a marked operation (a load, a move, `guard.busy`) is in flight."""
        box = self.box
        return box is not None and box.busy

    def relieving(self) -> Relief:
        """Give the relief of this process; made at the first callback or notice."""
        with self.lock:
            if self.relief is None:
                from guard.relief import Relief

                self.relief = Relief(self._relieved)
            return self.relief

    def watch_pressure(self) -> None:
        """Listen where MEMORY_PRESSURE_WATCH says so, once the guard is awake and somebody wants to hear."""
        with self.lock:
            awake = self.session is not None and not self.waiting
            if awake and self.watch is None and self.relief is not None and self.relief.wanted:
                from guard.pressure_watch import open_watch

                self.watch = open_watch(self.relief)

    def pressed(self, notice: Pressure) -> None:
        """Take the sidecar's word on pressure. Called in the thread of the link; callbacks run in another one."""
        with fence("pressure"):
            self.relieving().hear("sidecar", notice.level, notice.reason, _SIDECAR_HOLDS_SECONDS)

    def turned_away(self) -> str | None:
        """Say why no request should come in now; None where memory is not critical. On the path of every request."""
        relief = self.relief
        if relief is None:
            return None
        word = relief.pressing()
        return word.reason if word.level == "critical" else None

    def _relieved(self, effect: Relieved) -> None:
        link = self.link
        if link is not None:
            link.send(effect)


keeper = Keeper()
