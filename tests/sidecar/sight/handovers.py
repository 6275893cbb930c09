"""What the tests of the hand-over share: a server that notes what it is told, and clients that send what they like."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeVar

from guard.kernel import identity
from guard.kernel.reader import Reader
from guard.link.handover import Handover, Who, gather
from guard.link.protocol import LIMIT_BYTES, Hello, Message, Role, decode, encode
from guard.model import Known, LifeId
from sidecar.sight.handover import HandoverCallbacks, HandoverLimits, HandoverServer
from sidecar.sight.seen import SeenModel, SeenProcess

T = TypeVar("T")


@dataclass
class Heard:
    """Everything a server said, in order."""

    seen: list[tuple[SeenModel, SeenProcess]] = field(default_factory=list)
    exits: list[tuple[LifeId, int]] = field(default_factory=list)
    lost: list[tuple[SeenModel, SeenProcess]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def callbacks(self) -> HandoverCallbacks:
        """Callbacks that note."""
        return HandoverCallbacks(
            on_seen=lambda model, process: self.seen.append((model, process)),
            on_exit_status=lambda life, status: self.exits.append((life, status)),
            on_lost=lambda model, process: self.lost.append((model, process)),
            on_refused=self.refused.append,
        )


@contextlib.asynccontextmanager
async def serving(path: Path, limits: HandoverLimits | None = None) -> AsyncIterator[tuple[HandoverServer, Heard]]:
    """A server at `path`, closed in the end."""
    heard = Heard()
    server = HandoverServer(str(path), heard.callbacks(), limits, release="9.9")
    await server.start()
    try:
        yield server, heard
    finally:
        await server.close()


def life_of(pid: int | None = None, session: str = "session-1") -> LifeId:
    """The life of a process, our own by default."""
    reader = Reader()
    boot_id, ticks = identity.boot_id(reader), identity.start_ticks(reader, pid)
    assert isinstance(boot_id, Known)
    assert isinstance(ticks, Known)
    return LifeId(boot_id.value, os.getpid() if pid is None else pid, ticks.value, session)


def handover(
    *, role: Role = Role.GUARD, session: str = "session-1", pid: int | None = None, box_fd: int | None = None
) -> Handover:
    """An honest hand-over of a process, our own by default."""
    who = Who(name="model", life=life_of(pid, session), parent_session=None, command="serve", role=role)
    return gather(Reader(), who, pid=pid, box_fd=box_fd)


class RawClient:
    """A client that may be wrong. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(0)
        self.socket.connect(str(path))

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        self.socket.close()

    def send(self, raw: bytes | Message, descriptors: Sequence[int] = ()) -> None:
        """Send bytes or a message."""
        socket.send_fds(self.socket, [raw if isinstance(raw, bytes) else encode(raw)], list(descriptors))

    def hand_over(self, given: Handover, **changes: object) -> None:
        """Send a hand-over, its hello changed, and close our copies."""
        try:
            self.send(replace(given.hello, **changes), given.descriptors)  # type: ignore[arg-type]
        finally:
            given.close()

    async def answer(self, seconds: float = 30) -> Message | None:
        """The next message from the server, None where it hung up."""
        async with asyncio.timeout(seconds):
            while True:
                try:
                    raw = self.socket.recv(LIMIT_BYTES)
                except BlockingIOError:
                    await asyncio.sleep(0.005)
                except ConnectionResetError:
                    continue  # reported once, before what is still queued
                else:
                    return decode(raw) if raw else None


def replaced(given: Handover, name: str, fd: int) -> Handover:
    """A hand-over with one descriptor exchanged for another, which it then owns."""
    at = given.hello.descriptors.index(name)
    os.close(given.descriptors[at])
    return Handover(given.hello, (*given.descriptors[:at], fd, *given.descriptors[at + 1 :]))


def added(given: Handover, name: str, fd: int) -> Handover:
    """A hand-over with one descriptor more."""
    hello: Hello = replace(given.hello, descriptors=(*given.hello.descriptors, name))
    return Handover(hello, (*given.descriptors, fd))


def open_descriptors() -> dict[int, str]:
    """What this process has open, by number."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[int(entry.name)] = str(entry.readlink())
    return found
