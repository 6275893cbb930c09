"""One connected client: receiving with its bounds, sending without ever waiting. Knows no models."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
import struct
from typing import Final

from guard.link.protocol import LIMIT_BYTES, Message, Refused, decode, encode
from sidecar.sight.handover_check import RejectedError

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid
_MOST_RIGHTS: Final = 253  # SCM_MAX_FD, include/net/scm.h
_INT_BYTES: Final = array.array("i").itemsize


class ClosedError(Exception):
    """The client is gone."""


class PeerSocket:
    """The connection. `uid` is the kernel's word; a pid from another PID namespace would be 0, so none is asked for."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        self._socket = connection
        _pid, self.uid, _gid = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )

    async def receive(self) -> tuple[Message | None, list[int]]:
        """The next message (None for an unknown kind) and the descriptors that came with it, which the caller owns.

        Raises:
            ClosedError: the client is gone.
            RejectedError: it sent more than one message may hold.
            ProtocolError: it sent something that is no message.
        """
        while True:
            try:
                raw, control, flags, _ = self._socket.recvmsg(
                    LIMIT_BYTES, socket.CMSG_SPACE(_MOST_RIGHTS * _INT_BYTES), socket.MSG_CMSG_CLOEXEC
                )
                break
            except BlockingIOError:
                await _readable(self._socket)
            except OSError as exc:
                raise ClosedError from exc
        with contextlib.ExitStack() as received:
            descriptors = _rights(control)
            for fd in descriptors:
                received.callback(os.close, fd)
            if flags & socket.MSG_CTRUNC:
                raise RejectedError("descriptors were lost: too many, or the sidecar may not open so many files")
            if flags & socket.MSG_TRUNC:
                raise RejectedError(f"a message is longer than {LIMIT_BYTES} bytes")
            if not raw:
                raise ClosedError
            message = decode(raw)
            received.pop_all()
        return message, descriptors

    def send(self, message: Message) -> bool:
        """Send if there is room now; a client that does not read misses messages and holds up nobody."""
        try:
            self._socket.send(encode(message), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def refuse(self, reason: str) -> None:
        """Say why, and hang up."""
        self.send(Refused(reason))
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def _rights(control: list[tuple[int, int, bytes]]) -> list[int]:
    """Descriptors of the SCM_RIGHTS messages."""
    found = array.array("i")
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % _INT_BYTES])
    return list(found)


async def _readable(connection: socket.socket) -> None:
    """Wait until there is something to receive."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    fd = connection.fileno()
    loop.add_reader(fd, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class Allowance:
    """So many a second, and what came beyond is counted."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left = float(per_second)
        self._at = float("-inf")
        self._missed = 0

    def take(self, now: float) -> bool:
        """Whether one more is within the allowance."""
        self._left = min(float(self._per_second), self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            self._missed += 1
            return False
        self._left -= 1
        return True

    def forget_missed(self) -> int:
        """How many were beyond it since the last call."""
        missed, self._missed = self._missed, 0
        return missed
