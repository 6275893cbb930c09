"""Keeping the models in sight: hand-overs as they come, and the best other way while there are none."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from typing import Final

from guard.kernel.reader import Reader
from guard.link.protocol import Pressure, Relieved
from guard.model import LifeId
from sidecar import begun, distribution, pressure, pressure_socket, units
from sidecar.collect.model import ModelReader
from sidecar.collect.processes import ProcessReader
from sidecar.endings import Endings
from sidecar.hub import Hub
from sidecar.journal import Scalar
from sidecar.pressure_socket import PressureSocket
from sidecar.sample import SightKind
from sidecar.sight.chooser import Chooser, hands_over
from sidecar.sight.handover import HandoverCallbacks, HandoverLimits, HandoverServer
from sidecar.sight.handover_check import close_process
from sidecar.sight.levels import close_levels
from sidecar.sight.seen import SeenModel, SeenProcess
from sidecar.watch import Watch
from sidecar.watches import Watches

_LOOK_SECONDS: Final = 2.0
_SOCKET_CHECK_SECONDS: Final = 10.0


class SocketGoneError(Exception):
    """Somebody removed or replaced the socket, so no model can find us."""


class Seeing:
    """Two tasks, `look` and `listen`, which share the watches."""

    def __init__(self, hub: Hub, watches: Watches, endings: Endings, reader: Reader) -> None:
        self._hub = hub
        self._watches = watches
        self._endings = endings
        self._chooser = Chooser(hub.settings, reader)
        self._server: HandoverServer | None = None
        self._pressure_socket: PressureSocket | None = None

    async def look(self) -> None:
        """Look for the model by other ways while none hands over, in a thread: /proc of a stalled process may block."""
        while True:
            if not any(watch.sight is SightKind.HANDOVER for watch in self._watches):
                seen = await asyncio.to_thread(self._chooser.look)
                before = {watch.name: watch.sight for watch in self._watches}
                watch = self._watches.fallback(seen, self._close_fallback)
                if watch is not None:
                    self._took(watch, before.get(watch.name, SightKind.NONE))
            await self._hub.clock.sleep(_LOOK_SECONDS)

    async def listen(self) -> None:
        """Take hand-overs until cancelled. The socket is made anew if it vanishes."""
        if not hands_over(self._hub.settings.sight):
            await asyncio.Event().wait()
        path = f"{self._hub.settings.dir}/link.sock"
        uids = self._hub.settings.peer_uids
        server = HandoverServer(
            path,
            HandoverCallbacks(
                on_seen=self._handed_over,
                on_exit_status=self._exit_told,
                on_lost=self._lost,
                on_refused=self._refused,
                on_relieved=self._relieved,
            ),
            HandoverLimits(allowed_uids=None if uids is None else frozenset(uids)),
            distribution.release(),
        )
        await server.start()
        self._server = server
        offered = await self._offer_pressure()
        try:
            made = _identity(path)
            while _identity(path) == made:
                await self._hub.clock.sleep(_SOCKET_CHECK_SECONDS)
            raise SocketGoneError(f"the socket {path} was removed or replaced; making it anew")
        finally:
            self._server = None
            ended = self._watches.look_away_from(SightKind.HANDOVER)
            await offered.close()
            await server.close(but=ended)

    async def _offer_pressure(self) -> PressureSocket:
        """Offer pressure to programs without the guard as well. Where that fails, nothing else does."""
        offered = self._pressure_socket = PressureSocket(f"{self._hub.settings.dir}/{pressure_socket.NAME}")
        try:
            await offered.start()
        except OSError as exc:
            self._hub.degraded.set("pressure socket", str(exc.strerror or exc))
        else:
            self._hub.degraded.clear("pressure socket")
        return offered

    def tell(self, seen: SeenModel, notice: Pressure) -> None:
        """Pass a notice of pressure on to the guards of a model, and to whoever else in the pod listens."""
        if self._pressure_socket is not None and notice.level != pressure.NONE:
            self._pressure_socket.tell()
        if self._server is not None and seen.kind is SightKind.HANDOVER:
            self._server.send_pressure(seen, notice)

    def _handed_over(self, seen: SeenModel, _process: SeenProcess) -> None:
        self._endings.notice()
        before = {watch.name: watch.sight for watch in self._watches}
        watch = self._watches.handed_over(seen, self._close_handover)
        self._took(watch, before.get(watch.name, SightKind.NONE))

    def _took(self, watch: Watch, before: SightKind) -> None:
        """Go on from a changed sight: watch its processes, and say what is new."""
        reader, now = watch.reader, self._hub.clock.now()
        if watch.sight is not before:
            fields = {"from": before.value, "to": watch.sight.value}
            text = f"{before.value} -> {watch.sight.value}"
            self._hub.journal.say(now, watch.name, "sight_changed", text, fields)
        if reader is None:
            return
        was = reader.main
        for process in reader.join():
            process.base = watch.quiet.for_newcomer(process.began_s)
        main = reader.main
        if main is None:  # a container without visible processes: another one is another life
            watch.begin_life(None, now)
        elif main is not was and main.ended is None:
            self._new_life(watch, reader, was, main)
        for process in tuple(reader.processes):
            self._endings.watch(watch, process)
        watch.quiet.tick(now, reader.read_levels(full=True), self._hub.node.read())
        self._endings.refresh()

    def _new_life(self, watch: Watch, reader: ModelReader, was: ProcessReader | None, main: ProcessReader) -> None:
        life = main.seen.life
        watch.begin_life(life.session, self._hub.clock.now())
        fields: dict[str, Scalar] = {"pid": life.pid, "session": life.session}
        if watch.sight is SightKind.HANDOVER:  # it would be handed over again: a later sidecar may miss it
            fields = begun.fields_of(life)
        text = f"process {life.pid}: {main.seen.command}"
        self._hub.journal.say(self._hub.clock.now(), watch.name, "model_started", text, fields)
        if was is not None and was.ended is not None and watch.release is not None:
            reader.forget(was)
            watch.release(reader.seen, was.seen)

    def _exit_told(self, life: LifeId, wait_status: int) -> None:
        self._hub.log.debug("exit_status_told", pid=life.pid, session=life.session, wait_status=wait_status)

    def _lost(self, seen: SeenModel, process: SeenProcess) -> None:
        self._hub.log.debug("link_lost", model=seen.name, pid=process.life.pid, session=process.life.session)

    def _relieved(self, seen: SeenModel, process: SeenProcess, effect: Relieved) -> None:
        watch = next((one for one in self._watches if one.reader is not None and one.reader.seen is seen), None)
        if watch is None:
            return
        fields: dict[str, Scalar] = {"pid": process.life.pid, "session": process.life.session, **asdict(effect)}
        self._hub.journal.say(self._hub.clock.now(), watch.name, "relieved", _in_words(effect), fields)

    def _refused(self, reason: str) -> None:
        self._hub.log.warning("handover_refused", reason=reason)

    def _close_handover(self, seen: SeenModel, process: SeenProcess | None) -> None:
        for one in seen.processes if process is None else (process,):
            self._endings.unwatch(one)
        if self._server is not None:
            self._server.release(seen, process)

    def _close_fallback(self, seen: SeenModel, process: SeenProcess | None) -> None:
        for one in tuple(seen.processes) if process is None else (process,):
            self._endings.unwatch(one)
            close_process(one)
            if one in seen.processes:
                seen.processes.remove(one)
        if process is None:
            close_levels(seen.levels)
            self._chooser.drop()


def _in_words(effect: Relieved) -> str:
    freed = {"anonymous": effect.anon_freed_bytes, "cgroup": effect.cgroup_freed_bytes, "GPU": effect.gpu_freed_bytes}
    parts = [f"{name} {units.human_bytes(value)}" for name, value in freed.items() if value is not None]
    return f"{effect.action}: {effect.said or 'gave back ' + ', '.join(parts)} in {effect.seconds:.3f} s"


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a path as text is all there is
    except OSError:
        return None
    return found.st_dev, found.st_ino
