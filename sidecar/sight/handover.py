"""The sidecar's side of the socket: takes hand-overs in, hears of exits, tells of pressure.

Rules
    * Clients are other containers' processes, perhaps wrong or hostile. One costs a bounded number of connections,
      messages and descriptors, gets a reason, and holds up neither the event loop nor another client: receiving and
      sending never wait, and descriptors are looked at in a thread (see `handover_check`).
    * A lost connection is not a death: the pidfd tells of that. Descriptors stay open until the caller releases them.
    * The socket has mode 0666: the model runs as another uid of the same pod, and who can reach the shared directory at
      all is the pod's affair. `allowed_uids` narrows it. A peer's pid is 0 from another PID namespace and is not used.
    * A second sidecar does not take over from a living one; a socket that nobody listens on is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from guard.link.protocol import ChildExit, Hello, Pressure, ProtocolError, Relieved, Role, Welcome
from guard.model import LifeId
from sidecar.sight.handover_check import Checked, Peer, RejectedError
from sidecar.sight.handover_listen import ListenError, listen, magic_of, make_directory
from sidecar.sight.handover_models import Models, same_process
from sidecar.sight.handover_peer import Allowance, ClosedError, PeerSocket
from sidecar.sight.handover_thread import check_in_thread, close_all, close_checked
from sidecar.sight.seen import SeenModel, SeenProcess

__all__ = ["HandoverCallbacks", "HandoverLimits", "HandoverServer", "ListenError"]

_ACCEPTS_AT_ONCE: Final = 16
_ACCEPT_PAUSE_SECONDS: Final = 1.0
_CROWDED: Final = "others wait, and this connection has said nothing yet"
_STUCK: Final = "the descriptors cannot be looked at in time"


@dataclass(frozen=True, slots=True)
class HandoverLimits:
    """What clients may cost."""

    connections: int = 256
    """In total. A process keeps one; a big server has some dozens of processes."""
    connections_per_uid: int = 128
    """So that one user's flood leaves room for the others. Who says nothing makes room for who comes, oldest first."""
    handshake_seconds: float = 5.0
    """From connect to welcome. A guard needs milliseconds, a thrashing one seconds."""
    messages_per_second: int = 20
    """After the hello. A guard sends next to nothing."""
    refusals_per_second: int = 10
    """Reported; the rest is counted, so that a flood does not fill the log."""
    allowed_uids: frozenset[int] | None = None
    """Who may hand over. None: every user who can reach the socket."""


@dataclass(frozen=True, slots=True)
class HandoverCallbacks:
    """Called in the event loop.

    `on_seen` comes again for the same process object when its client reconnects or a second client (the guard behind
    a runner) adds to it: `life`, `box` and `command` may then have changed. `on_lost` says that no client of a process
    is connected any more. `on_refused` gives reasons in words. `on_relieved` hears what a guard gave back.
    """

    on_seen: Callable[[SeenModel, SeenProcess], object]
    on_exit_status: Callable[[LifeId, int], object]
    on_lost: Callable[[SeenModel, SeenProcess], object]
    on_refused: Callable[[str], object]
    on_relieved: Callable[[SeenModel, SeenProcess, Relieved], object] = lambda _model, _process, _effect: None


@dataclass(slots=True, eq=False)
class _Client:
    """A connection and, once welcomed, what it handed over."""

    peer: PeerSocket
    role: Role | None = None
    model: SeenModel | None = None
    process: SeenProcess | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)
    greeted: bool = False
    """Whether it has sent a hello."""
    evicted: bool = False
    """It has to go for another one, and does at the next turn of the loop."""


class HandoverServer:
    """Listens at `path` between `start` and `close`. Everything happens in one event loop."""

    def __init__(
        self, path: str, callbacks: HandoverCallbacks, limits: HandoverLimits | None = None, release: str = ""
    ) -> None:
        self._path = Path(path)
        self._callbacks = callbacks
        self._limits = limits or HandoverLimits()
        self._release = release
        self._models = Models()
        self._clients: dict[_Client, None] = {}  # oldest first
        self._listener: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._shared_magic: int | None = None
        self._refusals = Allowance(self._limits.refusals_per_second)

    @property
    def models(self) -> tuple[SeenModel, ...]:
        """Every model that was handed over and not yet released."""
        return tuple(self._models)

    async def start(self) -> None:
        """Make the directory if it is missing, and listen.

        Raises:
            ListenError: another sidecar listens there, or the socket cannot be made.
        """
        try:
            make_directory(self._path.parent)
            self._shared_magic = magic_of(self._path.parent)
            self._listener = listen(self._path)
            found = self._path.stat()
        except ListenError:
            raise
        except OSError as exc:
            raise ListenError(exc.errno, f"cannot listen at {self._path}: {exc.strerror or exc}") from exc
        self._inode = (found.st_dev, found.st_ino)
        self._accept_again()

    async def close(self, but: Collection[SeenModel] = ()) -> None:
        """Hang up on everybody, stop listening and close every descriptor that was not released, but of these models.

        `release` of any server closes theirs.
        """
        listener, self._listener = self._listener, None
        if listener is None:
            return
        asyncio.get_running_loop().remove_reader(listener.fileno())
        listener.close()
        with contextlib.suppress(OSError):
            found = self._path.stat()
            if (found.st_dev, found.st_ino) == self._inode:
                self._path.unlink()
        tasks = [client.task for client in self._clients if client.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for model in self._models:
            if not any(model is one for one in but):
                self._models.release(model)

    def send_pressure(self, model: SeenModel, notice: Pressure) -> int:
        """Tell every guard of a model; give how many it reached. Who does not read is passed over."""
        guards = [one for one in self._clients if one.model is model and one.role is Role.GUARD]
        return sum(client.peer.send(notice) for client in guards)

    def release(self, model: SeenModel, process: SeenProcess | None = None) -> None:
        """Close and forget one ended process, or a whole model: nobody will read it any more."""
        self._models.release(model, process)

    def _accept_again(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        """Take some waiting connections; the rest comes with the next turn of the loop."""
        listener = self._listener
        for _ in range(_ACCEPTS_AT_ONCE):
            if listener is None:
                return
            try:
                connection, _address = listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue
            except (
                OSError
            ) as exc:  # out of descriptors or memory; the listener stays readable, so look away for a while
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener.fileno())
                loop.call_later(_ACCEPT_PAUSE_SECONDS, self._accept_again)
                self._refused(f"no connection can be taken for a second: {exc.strerror}")
                return
            self._admit(PeerSocket(connection))

    def _admit(self, peer: PeerSocket) -> None:
        """Start to talk, unless there are too many or it is the wrong user."""
        allowed = self._limits.allowed_uids
        denied = allowed is not None and peer.uid not in allowed
        reason = f"user {peer.uid} may not hand over here" if denied else self._make_room(peer.uid)
        if reason is not None:
            peer.refuse(reason)
            self._refused(reason)
            return
        client = _Client(peer)
        self._clients[client] = None
        client.task = asyncio.get_running_loop().create_task(self._serve(client), name="handover-client")

    def _make_room(self, uid: int) -> str | None:
        """Have the oldest silent connection go where there are too many; a reason where none is silent."""
        staying = [client for client in self._clients if not client.evicted]
        mine = [client for client in staying if client.peer.uid == uid]
        crowd = mine if len(mine) >= self._limits.connections_per_uid else staying
        if crowd is staying and len(staying) < self._limits.connections:
            return None
        silent = next((client for client in crowd if not client.greeted), None)
        if silent is None or silent.task is None:
            return f"too many connections ({len(mine)} of user {uid}, {len(staying)} in total)"
        silent.evicted = True
        asyncio.get_running_loop().call_soon(silent.task.cancel)  # not before its first step, which would be its last
        return None

    async def _serve(self, client: _Client) -> None:
        """One client from hello to its end."""
        try:
            await self._shake_hands(client)
            await self._listen_to(client)
        except ClosedError:
            pass
        except asyncio.CancelledError:
            if not client.evicted:
                raise
            client.peer.refuse(_CROWDED)
            self._refused(f"user {client.peer.uid}: {_CROWDED}")
        except (RejectedError, ProtocolError) as exc:
            client.peer.refuse(str(exc))
            self._refused(f"user {client.peer.uid}: {exc}")
        finally:
            client.peer.close()
            self._clients.pop(client)
        self._lost(client)

    async def _shake_hands(self, client: _Client) -> None:
        """Receive the hello, look at what came with it, welcome."""
        seconds = self._limits.handshake_seconds
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                hello, descriptors = await client.peer.receive()
                client.greeted = True
        except TimeoutError:
            raise RejectedError(f"no hello within {seconds:g} seconds") from None
        if not isinstance(hello, Hello):
            close_all(descriptors)
            raise RejectedError("the first message is no hello")
        looking = check_in_thread(hello, descriptors, Peer(client.peer.uid, self._shared_magic))
        try:
            await asyncio.wait([looking], timeout=deadline - loop.time())
            if not looking.done():
                self._refused(f"user {client.peer.uid}: {_STUCK}")
                client.peer.refuse(_STUCK)
                await asyncio.wait([looking])  # the client keeps its place, so stuck threads are bounded as clients are
                close_checked(looking.result())
                raise ClosedError
        except asyncio.CancelledError:
            looking.cancel()  # the thread closes what it holds
            raise
        self._welcome(client, looking.result())

    def _welcome(self, client: _Client, checked: Checked) -> None:
        for left_out in checked.left_out:
            self._refused(f"user {client.peer.uid}: {left_out}")
        client.model, client.process = self._models.add(checked)
        client.role = checked.hello.role
        client.peer.send(Welcome(self._release))
        self._callbacks.on_seen(client.model, client.process)

    async def _listen_to(self, client: _Client) -> None:
        """Hear what a welcomed client says, until it goes."""
        allowance = Allowance(self._limits.messages_per_second)
        while True:
            message, descriptors = await client.peer.receive()
            close_all(descriptors)
            if not allowance.take(asyncio.get_running_loop().time()):
                raise RejectedError("too many messages")
            if isinstance(message, ChildExit):
                self._exited(client, message)
            elif isinstance(message, Relieved) and client.model is not None and client.process is not None:
                self._callbacks.on_relieved(client.model, client.process, message)

    def _exited(self, client: _Client, message: ChildExit) -> None:
        process = client.process
        if client.role is not Role.RUNNER or process is None or not same_process(process.life, message.life):
            raise RejectedError("an exit report about a process that this client did not hand over as its runner")
        process.wait_status_from_runner = message.wait_status
        process.sigterm_from_runner_wall_s = message.sigterm_wall_s
        self._callbacks.on_exit_status(process.life, message.wait_status)

    def _lost(self, client: _Client) -> None:
        """Tell that a process has no client any more, if it was its last."""
        if client.model is None or client.process is None:
            return
        if not any(other.process is client.process for other in self._clients):
            self._callbacks.on_lost(client.model, client.process)

    def _refused(self, reason: str) -> None:
        if self._refusals.take(asyncio.get_running_loop().time()):
            missed = self._refusals.forget_missed()
            self._callbacks.on_refused(f"{reason} (and {missed} more)" if missed else reason)
