"""The daemon put together: parts are made, tasks are started, and on SIGTERM everything is written down and ended.

No decisions here. Each task is supervised: one that fails is named on the health page and tried again, and none takes
another with it. Only two things end the start: packages that are not ours, and an address that cannot be listened on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from guard.kernel import identity
from guard.kernel.reader import Reader
from guard.model import Known, Unknown
from sidecar import distribution, footprint
from sidecar.begun import Begun, is_among
from sidecar.board import Board, Event, OwnView
from sidecar.boxes import Accounts, Boxes
from sidecar.clock import Clock, SystemClock
from sidecar.collect.gpu import GpuReader
from sidecar.collect.kmsg import KernelLog
from sidecar.collect.node import NodeReader
from sidecar.collect.probe import Prober
from sidecar.endings import Endings
from sidecar.hub import Hub
from sidecar.journal import Journal, needs_attention
from sidecar.outputs.http import HttpOptions
from sidecar.outputs.log import JsonLog, capture_stdlib
from sidecar.outputs.record_store import RecordLimits
from sidecar.outputs.recorder import Recorder
from sidecar.outputs.serve import ServeError, serving
from sidecar.past import Past
from sidecar.refining import Refining
from sidecar.sample import Instant, ProbeOutcome, ProbeResult
from sidecar.seeing import Seeing
from sidecar.settings import ProbeKind, Settings
from sidecar.sight.seen import SeenProcess
from sidecar.supervise import Degraded, Supervisor
from sidecar.supervisors.wiring import Parts, Supervisors
from sidecar.tick import Ticker
from sidecar.verdict.values import EndEvidence
from sidecar.watch import Watch
from sidecar.watches import Watches

EXIT_OK: Final = 0
EXIT_CANNOT_START: Final = 2
_NOTICES_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 1.0
_POOL: Final = "io"
_POOL_THREADS: Final = 32
"""Made as they are needed. A lookup of a probe's host, or a read of a volume that hangs, keeps one for as long."""
_POOL_SECONDS: Final = 1.0
_EVERYBODY: Final = 0o1777


def run(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; give the exit status. Says in one line on standard error why it cannot start."""
    complaint = distribution.complaint(distribution.imported_packages()) or _grpc_complaint(settings)
    if complaint is not None:
        return _cannot_start(complaint)
    footprint.open_many_files()
    log = JsonLog(clock=SystemClock(), level=settings.log_level.value)
    undo = capture_stdlib(log)
    try:
        return asyncio.run(_main(settings, log))
    except ServeError as exc:
        return _cannot_start(str(exc.strerror or exc))
    finally:
        undo()


def _grpc_complaint(settings: Settings) -> str | None:
    """Say what is missing for gRPC: without it every probe would fail, and a well server with them."""
    asked = next((target.where for target in settings.probe if target.kind is ProbeKind.GRPC), None)
    if asked is None and settings.grpc_listen is None:
        return None
    try:
        importlib.import_module("sidecar.collect.probe_grpc")
    except ImportError as exc:
        what = "grpc_listen" if asked is None else f"probe grpc://{asked} (tcp:// needs nothing)"
        return f"{what}: {exc}; pip install 'oomguard[sidecar,grpc]'"
    return None


def _cannot_start(reason: str) -> int:
    sys.stderr.write(f"oomguard sidecar: {reason}\n")
    return EXIT_CANNOT_START


async def _main(settings: Settings, log: JsonLog) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    pool = ThreadPoolExecutor(_POOL_THREADS, _POOL)
    loop.set_default_executor(pool)
    daemon = Daemon(settings, SystemClock(), log)
    options = HttpOptions(host=settings.listen.host, port=settings.listen.port, livez=daemon.livez)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(daemon.board, options))
        if settings.grpc_listen is not None:
            from sidecar.outputs import grpc_health

            await stack.enter_async_context(grpc_health.serving(daemon.board, options, settings.grpc_listen))
        log.info("sidecar_started", host=server.host, port=server.port, dir=settings.dir, sight=settings.sight.value)
        await daemon.start()
        gc.collect()
        footprint.give_back()
        gc.freeze()  # what start-up made stays; later collections need not look at it again
        gc.collect()  # nothing, and it is now that against which the collector holds what has come to be old
        log.info("memory_locked" if footprint.stay_in_memory() else "memory_not_locked")
        await stop.wait()
        log.info("sidecar_stopping")
        await daemon.stop()
    await _leave(pool)
    return EXIT_OK


async def _leave(pool: ThreadPoolExecutor) -> None:
    """End the process here where a thread waits for what may never answer: asyncio and the interpreter would wait too.

    Everything is written down by now.
    """
    pool.shutdown(wait=False, cancel_futures=True)
    deadline_s = time.monotonic() + _POOL_SECONDS
    while any(thread.name.startswith(f"{_POOL}_") for thread in threading.enumerate()):
        if time.monotonic() > deadline_s:
            os._exit(EXIT_OK)
        await asyncio.sleep(0.01)


class Daemon:
    """All parts and their tasks, in a running loop."""

    def __init__(self, settings: Settings, clock: Clock, log: JsonLog) -> None:
        now, reader = clock.now(), Reader()
        own = OwnView(started=now, last_tick=None, tick_seconds=settings.tick.longest_seconds, ticks=0, degraded=())
        self.board = Board(own=own)
        boot_id = identity.boot_id(reader)
        boot = "" if isinstance(boot_id, Unknown) else boot_id.value
        self._gpu = GpuReader(clock)
        limits = RecordLimits(max_bytes=settings.record.max_bytes, keep_seconds=settings.record.keep_seconds)
        self._hub = Hub(
            settings=settings,
            boot_id=boot,
            clock=clock,
            board=self.board,
            journal=Journal(self.board),
            degraded=Degraded(self._degraded_changed),
            log=log,
            node=NodeReader(reader),
            kmsg=KernelLog(reader, clock),
            recorder=Recorder(f"{settings.dir}/record.sqlite", limits, boot_id=boot, clock=clock),
            gpu=self._gpu.latest,
        )
        self.livez = self._hub.livez
        self._supervisor = Supervisor(clock, self._hub.degraded, log)
        self._past = Past(self.board)
        self._refining = Refining(self._hub, self._past)
        self._endings = Endings(self._hub, self._past.sessions, self._refining)
        self.watches = Watches(settings.name, self._make_watch, self._drop_watch)
        self._endings.watches = self._refining.watches = self.watches
        self._seeing = Seeing(self._hub, self.watches, self._endings, reader)
        parts = Parts(hub=self._hub, watches=self.watches, refine=self._endings.refine)
        self._supervisors = Supervisors(parts, os.environ)
        self._ticker = Ticker(self._hub, self.watches, self._endings, self._seeing.tell)
        self._endings.changed = lambda: self._ticker.tick(at_once=True)
        self._refining.changed = self._endings.refresh

    async def start(self) -> None:
        """Read the record, then start every task."""
        hub = self._hub
        _make_directories(hub.settings.dir)
        loaded = await hub.recorder.load()
        self._past.take(loaded, self.watches)
        self._refining.restore(loaded)
        self.board.events = loaded.events
        hub.journal.go_on_from(loaded.last_event_id + 1)
        hub.journal.listen(hub.recorder.put_event)
        hub.journal.listen(self._log)
        hub.journal.listen(self._refining.hear_of_gpu)
        hub.kmsg.start()
        self._gpu.start()
        if hub.node.lxcfs:
            hub.degraded.set("node", "LXCFS stands in for /proc/meminfo: the node's memory is not seen")
        accounts = Accounts(
            in_sight=self._sessions_in_sight,
            recorded=self._past.sessions,
            ended=self._orphan_ended,
            found=self._refining.found,
            begun=self._begun_out_of_sight,
        )
        tasks: dict[str, Callable[[], Coroutine[object, object, None]]] = {
            "record notices": self._mind_record,
            "tick": self._ticker.run,
            "sight": self._seeing.look,
            "handover": self._seeing.listen,
            "boxes": Boxes(hub, accounts).run,
        }
        for name, work in tasks.items():
            self._supervisor.start(name, work)
        self._supervisors.start(self._supervisor)

    async def stop(self) -> None:
        """End every task, publish the ends that are being looked into, and write everything down."""
        hub = self._hub
        hub.journal.say(hub.clock.now(), "", "sidecar_stopped", "the sidecar was told to stop")
        await asyncio.wait([asyncio.create_task(self._endings.drain())], timeout=_DRAIN_SECONDS)
        await self._supervisor.stop_all()
        self._refining.close()
        hub.kmsg.close()
        self._gpu.close()
        hub.node.close()
        await hub.recorder.close()

    def _log(self, event: Event) -> None:
        fields: dict[str, object] = {"model": event.model, "text": event.text, **event.fields}
        self._hub.log.write("warning" if needs_attention(event) else "info", event.kind, fields)

    def _make_watch(self, name: str) -> Watch:
        hub = self._hub
        watch = Watch(
            name=name,
            prober=Prober(
                hub.settings.probe_for(name), hub.settings.health, hub.clock, lambda result: self._probed(watch, result)
            ),
            ends=self._past.ends_of(name),
            incidents=self._past.incidents_of(name),
            memory=self._past.judge_of(name),
        )
        if watch.prober.wanted:
            self._supervisor.start(f"probe {name}", watch.prober.run)
        return watch

    def _drop_watch(self, watch: Watch) -> None:
        self._supervisor.cancel(f"probe {watch.name}")
        self._hub.recorder.forget(watch.name)
        self._hub.livez.forget(watch.name)
        self._past.let_go(watch)

    def _probed(self, watch: Watch, result: ProbeResult) -> None:
        watch.probes = watch.probes.add(result)
        failed = result.outcome is not ProbeOutcome.OK
        if failed != watch.probe_failing:
            watch.probe_failing = failed
            kind = "probe_failed" if failed else "probe_answered"
            fields = {"outcome": result.outcome.value, "latency_seconds": round(result.latency_seconds, 4)}
            text = f"probe: {result.outcome.value} after {result.latency_seconds:.3f} s {result.detail}".strip()
            self._hub.journal.say(self._hub.clock.now(), watch.name, kind, text, fields)

    async def _mind_record(self) -> None:
        hub = self._hub
        while True:
            late = hub.recorder.take_late()
            if late is not None:
                self._past.take(late, self.watches)
                self._refining.restore(late)
                hub.journal.go_on_from(late.last_event_id + 1)
                self._ticker.tick(at_once=True)  # so that every page shows it at the same moment
            for notice in hub.recorder.take_notices():
                hub.journal.say(hub.clock.now(), "", notice.kind, notice.text)
            health = hub.recorder.health()
            if health.incidents is not None:
                self.board.incidents_recorded = Known(health.incidents)
            words = health.degraded
            if words is None:
                hub.degraded.clear("record")
            else:
                hub.degraded.set("record", words)
            await hub.clock.sleep(_NOTICES_SECONDS)

    def _degraded_changed(self, subject: str, words: str | None) -> None:
        now: Instant = self._hub.clock.now()
        if words is None:
            self._hub.journal.say(now, "", "recovered", f"{subject} works again", {"subject": subject})
        else:
            self._hub.journal.say(now, "", "degraded", f"{subject}: {words}", {"subject": subject})

    def _in_sight(self) -> list[SeenProcess]:
        readers = (watch.reader for watch in self.watches if watch.reader is not None)
        return [process.seen for reader in readers for process in reader.processes] + self._endings.looked_into()

    def _sessions_in_sight(self) -> set[str]:
        return {session for process in self._in_sight() for session in (process.life.session, *process.aliases)}

    def _begun_out_of_sight(self) -> list[Begun]:
        in_sight = {process.life for process in self._in_sight()}
        return [one for one in self._past.begun if not is_among(one.life, in_sight)]

    def _orphan_ended(self, name: str | None, evidence: EndEvidence) -> None:
        """Make the incident of a process whose end no sidecar saw; without a name it belongs to the model there is."""
        model = name or self.watches.first().name
        incident = self._endings.publish(model, evidence)
        if incident is not None:
            text = f"ended unseen: {incident.verdict.summary}"
            self._hub.journal.say(self._hub.clock.now(), model, "end_found", text, {"incident": incident.id})


def _make_directories(path: str) -> None:
    """Make what is missing, for every user as /tmp is. Ours are the boxes then, so that we may remove old ones."""
    for directory in (path, f"{path}/boxes"):
        with contextlib.suppress(OSError):  # who needs the directory says what is wrong with it
            os.mkdir(directory)  # noqa: PTH102 - a path as text is all there is
            os.chmod(directory, _EVERYBODY)  # noqa: PTH101 - not through mkdir's mode, which the umask would cut
