"""The guard's side of the socket: one daemon thread that finds the sidecar, hands over, and listens for pressure.

The host never waits for it and never sees an exception of it. Either side may start first: the thread tries again with
a growing, jittered pause, and starts anew when the sidecar goes away. After a fork the child calls `abandon` and makes
a client of its own: threads do not survive fork, and the inherited socket belongs to the parent.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from guard.link.protocol import LIMIT_BYTES, Message, Pressure, ProtocolError, Refused, Welcome, decode, encode

if TYPE_CHECKING:
    from guard.link.handover import Handover


class Phase(StrEnum):
    """Where a link stands."""

    IDLE = "idle"  # not started
    WAITING = "waiting"  # no sidecar yet, or none any more; tries again
    CONNECTED = "connected"  # the sidecar took the hand-over
    REFUSED = "refused"  # it did not; tries again, less and less often
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LinkState:
    """Where the link stands, and the last thing that went wrong."""

    phase: Phase
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Where the sidecar listens, and how patiently to look for it."""

    path: str
    """Of the socket, `link.sock` in the shared directory."""
    first_wait_seconds: float = 0.1
    """Pause after the first failed try; it doubles up to the longest. The containers of a pod start within a second."""
    longest_wait_seconds: float = 5.0
    """One failed connect in five seconds costs nothing to notice; a restarted sidecar sees again within it."""
    refused_wait_seconds: float = 30.0
    """The longest pause after a refusal. The first are short, as a process that thrashes may just have been too slow;
    another version or too many clients rarely change soon."""
    handshake_seconds: float = 5.0
    """For connect, hello and answer together with a sidecar that is stuck."""


class LinkClient:
    """One link to the sidecar. Methods may be called from any thread; none raises for what the other side does.

    Args:
        settings: see `LinkSettings`.
        make_handover: called in the thread for every connection; the client closes what it gives.
        on_message: called in the thread with every `Pressure`.
    """

    def __init__(
        self,
        settings: LinkSettings,
        make_handover: Callable[[], Handover],
        on_message: Callable[[Pressure], object],
    ) -> None:
        self._settings = settings
        self._make_handover = make_handover
        self._on_message = on_message
        self._random = random.Random()  # noqa: S311 - jitter, not a secret; its own, so a host's seeded sequence stays
        self._changed = threading.Condition()
        self._state = LinkState(Phase.IDLE)
        self._socket: socket.socket | None = None
        self._handover: Handover | None = None

    @property
    def state(self) -> LinkState:
        """Where the link stands now."""
        return self._state

    def start(self) -> None:
        """Start the thread, once. Where no thread can start (the interpreter ends) the link is closed."""
        with self._changed:
            if self._state.phase is not Phase.IDLE:
                return
            self._set(LinkState(Phase.WAITING))
        try:
            threading.Thread(target=self._run, name="oomguard-link", daemon=True).start()
        except RuntimeError as exc:
            self._set(LinkState(Phase.CLOSED, str(exc)))

    def send(self, message: Message, within_seconds: float = 0.5) -> bool:
        """Send if the link stands, or comes to stand in time; tell whether it went out. Works at exit too."""
        deadline = time.monotonic() + within_seconds
        try:
            raw = encode(message)
            while (left := deadline - time.monotonic()) > 0:
                with self._changed:
                    self._changed.wait_for(lambda: self._state.phase in (Phase.CONNECTED, Phase.CLOSED), left)
                    link = self._socket
                    if link is None or self._state.phase is not Phase.CONNECTED:
                        return False
                    with contextlib.suppress(BlockingIOError):  # under the lock: the thread cannot close it meanwhile
                        return link.send(raw, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) == len(raw)
                _wait_writable(link, deadline - time.monotonic())
        except (OSError, ValueError):  # gone, closed meanwhile, or too long
            pass
        return False

    def close(self) -> None:
        """End the link; the thread ends soon after."""
        with self._changed:
            self._set(LinkState(Phase.CLOSED))
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """In a forked child: drop what belongs to the parent. Takes no lock, ends no connection of the parent."""
        self._changed = threading.Condition()
        self._state = LinkState(Phase.CLOSED, "forked")
        self._drop()

    def _set(self, state: LinkState) -> None:
        """Take a state and wake who waits for it. A closed link stays closed."""
        with self._changed:
            if self._state.phase is not Phase.CLOSED:
                self._state = state
                self._changed.notify_all()

    def _run(self) -> None:
        """Connect, listen, pause; until closed."""
        settings = self._settings
        wait = settings.first_wait_seconds
        while self._state.phase is not Phase.CLOSED:
            try:
                ended = self._connect_and_listen()
            except (OSError, ProtocolError) as exc:
                ended = LinkState(Phase.WAITING, str(exc))
            except Exception as exc:  # noqa: BLE001 - a callback of the host's side; it must not end the thread loudly
                ended = LinkState(Phase.WAITING, repr(exc))
            if self._state.phase is Phase.CONNECTED:
                wait = settings.first_wait_seconds
            self._set(ended)
            self._drop()
            with self._changed:
                self._changed.wait_for(lambda: self._state.phase is Phase.CLOSED, wait * self._random.uniform(0.5, 1.0))
            refused = ended.phase is Phase.REFUSED
            wait = min(wait * 2, settings.refused_wait_seconds if refused else settings.longest_wait_seconds)

    def _connect_and_listen(self) -> LinkState:
        """One connection from connect to end; why it ended."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = link
        link.settimeout(self._settings.handshake_seconds)
        link.connect(self._settings.path)
        self._handover = self._make_handover()
        socket.send_fds(link, [encode(self._handover.hello)], list(self._handover.descriptors))
        self._close_handover()
        answer = _receive(link)
        if isinstance(answer, Refused):
            return LinkState(Phase.REFUSED, answer.reason)
        if not isinstance(answer, Welcome):
            return LinkState(Phase.WAITING, "the sidecar did not welcome the hand-over")
        link.settimeout(None)
        self._set(LinkState(Phase.CONNECTED, f"sidecar {answer.release}"))
        while self._state.phase is Phase.CONNECTED:
            message = _receive(link)
            if isinstance(message, Pressure):
                self._on_message(message)
            elif isinstance(message, Refused):
                return LinkState(Phase.REFUSED, message.reason)
        return self._state

    def _close_handover(self) -> None:
        handover, self._handover = self._handover, None
        if handover is not None:
            handover.close()

    def _drop(self) -> None:
        """Close this process's copies of the socket and of a hand-over that was on its way."""
        self._close_handover()
        with self._changed:
            link, self._socket = self._socket, None
            if link is not None:
                link.close()


def _receive(link: socket.socket) -> Message | None:
    """The next message, None for one of an unknown kind.

    Raises:
        ConnectionError: the sidecar is gone.
        OSError, ProtocolError: anything else.
    """
    try:
        raw = link.recv(LIMIT_BYTES)
    except ConnectionResetError:
        # The sidecar closed without having read all of ours; its last word, a Refused, is still queued behind the
        # error, which is reported once (net/unix/af_unix.c, unix_release_sock).
        raw = link.recv(LIMIT_BYTES)
    if not raw:
        raise ConnectionError("the sidecar is gone")
    return decode(raw)


def _wait_writable(link: socket.socket, seconds: float) -> None:
    """Wait for room to send, no longer than this."""
    poll = select.poll()
    poll.register(link, select.POLLOUT)
    poll.poll(max(0.0, seconds) * 1000)
