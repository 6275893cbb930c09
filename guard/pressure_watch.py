"""Listening to who speaks systemd's resource pressure protocol: MEMORY_PRESSURE_WATCH and MEMORY_PRESSURE_WRITE.

The path may be a PSI file (POLLPRI), a FIFO or a UNIX stream socket (POLLIN, data is thrown away); /dev/null means that
the administrator wants none of it; the decoded WRITE goes in right after opening (systemd, docs/PRESSURE.md). The
protocol knows one degree of pressure, which is our "warning".

The sidecar's own socket is not listened to: the link says the same, and how bad it is.
"""

from __future__ import annotations

import base64
import binascii
import os
import select
import socket
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.fence import fence, troubles
from guard.place import WATCH_VARIABLE, pressure_path, shared_directory
from guard.pressure import WARNING
from guard.threads import start_unseen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.relief import Relief

WRITE: Final = "MEMORY_PRESSURE_WRITE"
OFF: Final = "/dev/null"
HOLDS_SECONDS: Final = 10.0
"""How long one event counts. PSI windows are one or two seconds and fire once each while pressure lasts."""

_AGAIN_SECONDS: Final = 5.0  # to a socket whose server went away
_DISCARD_BYTES: Final = 4096
_OPEN_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """What the environment asks for."""

    path: str
    write: bytes


def plan(environment: Mapping[str, str], own_socket: str) -> WatchPlan | None:
    """Read the two variables; None where nothing is asked for, or it is off, or it is the sidecar's socket.

    Raises:
        ValueError: what is to be written is not base64, or the path is not absolute.
    """
    path = environment.get(WATCH_VARIABLE, "")
    if path in ("", OFF) or os.path.normpath(path) == os.path.normpath(own_socket):
        return None
    if not path.startswith("/"):
        raise ValueError(f"{WATCH_VARIABLE} is not an absolute path: {path[:100]}")
    try:
        return WatchPlan(path, base64.b64decode(environment.get(WRITE, ""), validate=True))
    except binascii.Error as error:
        raise ValueError(f"{WRITE} is not base64: {error}") from error


def open_watch(relief: Relief) -> PressureWatch | None:
    """Start listening where the environment asks for it; what is wrong with it is said in `status()`."""
    with fence("pressure watch"):
        wanted = plan(os.environ, pressure_path(shared_directory()))
        if wanted is not None:
            watch = PressureWatch(wanted, relief)
            if start_unseen(watch):
                return watch
            watch.close()
    return None


class PressureWatch:
    """One daemon thread on one descriptor, from `start` to `close`."""

    def __init__(self, wanted: WatchPlan, relief: Relief) -> None:
        self._plan = wanted
        self._relief = relief
        self._stop_read, self._stop_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="oomguard-pressure", daemon=True)

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: none can start.
        """
        self._thread.start()

    def close(self) -> None:
        """End the thread and wait for it; it only polls, so that is at once."""
        write, self._stop_write = self._stop_write, -1
        if write < 0:
            return
        os.close(write)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)
        os.close(self._stop_read)

    def abandon(self) -> None:
        """In a forked child: close this process's copies; the thread stayed in the parent."""
        for fd in (self._stop_read, self._stop_write):
            with suppress(OSError):
                os.close(fd)
        self._stop_write = -1

    def _run(self) -> None:
        said = ""
        while True:
            try:
                again = self._listen_once()
            except OSError as error:
                again, what = True, f"{self._plan.path}: {error.strerror or error}"
                if what != said:  # once, not every five seconds
                    said = what
                    troubles.add("pressure watch", what)
            if not again or self._stopped(_AGAIN_SECONDS):
                return

    def _stopped(self, seconds: float) -> bool:
        """Wait; true as soon as `close` was called."""
        poll = select.poll()
        poll.register(self._stop_read, 0)  # hang-up is always reported
        return bool(poll.poll(seconds * 1000))

    def _listen_once(self) -> bool:
        """Open and listen until the other side is gone; true if it is worth another try."""
        mode = os.stat(self._plan.path).st_mode  # noqa: PTH116 - no path object in a host's process for this
        if stat.S_ISSOCK(mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.settimeout(_AGAIN_SECONDS)
                link.connect(self._plan.path)
                link.sendall(self._plan.write)
                link.settimeout(0)
                return self._listen(link.fileno(), select.POLLIN)
        fd = os.open(self._plan.path, _OPEN_FLAGS)
        try:
            if self._plan.write:
                os.write(fd, self._plan.write)
            return self._listen(fd, select.POLLIN if stat.S_ISFIFO(mode) else select.POLLPRI)
        finally:
            os.close(fd)

    def _listen(self, fd: int, event: int) -> bool:
        """Pass events on until stopped (false), the cgroup is removed (POLLERR, false) or a socket ends (true)."""
        poll = select.poll()
        poll.register(fd, event)
        poll.register(self._stop_read, 0)
        while True:
            happened = dict(poll.poll())
            if self._stop_read in happened or happened[fd] & (select.POLLERR | select.POLLNVAL):
                return False
            if event == select.POLLIN and not _discard(fd):
                return True
            self._relief.hear("watch", WARNING, f"pressure event from {self._plan.path}", HOLDS_SECONDS)


def _discard(fd: int) -> bool:
    """Read what is there and throw it away; false at the end of the stream."""
    try:
        return os.read(fd, _DISCARD_BYTES) != b""
    except BlockingIOError:
        return True
