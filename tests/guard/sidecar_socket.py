"""The sidecar's end of the socket, as plain as it gets: it takes one hand-over and reads what comes after."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from guard.link.protocol import Hello, Message, Welcome, decode, encode

_LIMIT_BYTES = 1 << 16
_SECONDS = 20.0


class Taken:
    """One hand-over: what was said, the descriptors by name, and the connection."""

    def __init__(self, link: socket.socket) -> None:
        raw, fds, _, _ = socket.recv_fds(link, _LIMIT_BYTES, 250)
        hello = decode(raw)
        assert isinstance(hello, Hello), hello
        self.link = link
        self.hello = hello
        self.descriptors = dict(zip(hello.descriptors, fds, strict=True))
        link.sendall(encode(Welcome("test")))

    def read(self, name: str) -> str:
        """Read a handed-over file from its start."""
        return os.pread(self.descriptors[name], _LIMIT_BYTES, 0).decode()

    def send(self, message: Message) -> None:
        """Send to the client."""
        self.link.sendall(encode(message))

    def receive(self) -> Message | None:
        """Read the next message; None for a kind that is not known."""
        return decode(self.link.recv(_LIMIT_BYTES))

    def receive_end(self) -> bool:
        """Wait for the next word; true if it is the end of the connection."""
        try:
            return self.link.recv(_LIMIT_BYTES) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close everything that was handed over."""
        self.link.close()
        for fd in self.descriptors.values():
            os.close(fd)


class SidecarSocket:
    """A listening `link.sock`."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._taken: list[Taken] = []

    def accept(self) -> Taken:
        """Take the next hand-over and welcome it."""
        link, _ = self._listener.accept()
        link.settimeout(_SECONDS)
        taken = Taken(link)
        self._taken.append(taken)
        return taken

    def close(self) -> None:
        """Close all."""
        self._listener.close()
        for taken in self._taken:
            taken.close()


@contextlib.contextmanager
def listening(shared: Path) -> Iterator[SidecarSocket]:
    """Listen in a shared directory."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(shared / "link.sock"))
    listener.listen()
    listener.settimeout(_SECONDS)
    sidecar = SidecarSocket(listener)
    try:
        yield sidecar
    finally:
        sidecar.close()
