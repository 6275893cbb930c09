"""Watching for ends, and what follows from one: latch at once, settle shortly, judge, publish."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from guard.box.end_note import EndNote
from guard.box.faults import NativeFault
from guard.kernel import memcg
from guard.model import Known, LifeId, Reading, Unknown, Why
from sidecar import ends, leavings, unseen
from sidecar.board import Incident
from sidecar.collect.model import ModelReader
from sidecar.collect.processes import ProcessReader
from sidecar.hub import Hub
from sidecar.journal import Scalar
from sidecar.livez import Failing
from sidecar.outputs.shape import pack
from sidecar.quiet import Base, later
from sidecar.refining import Refining
from sidecar.sample import Instant, Sample
from sidecar.sight.seen import SeenProcess
from sidecar.verdict.classify import classify
from sidecar.verdict.joining import lean
from sidecar.verdict.owner import kills
from sidecar.verdict.supervisor_values import SupervisorEnd
from sidecar.verdict.values import NOT_LOOKED_FOR, EndClass, EndEvidence
from sidecar.watch import Watch

_BY_KERNEL: Final = (EndClass.CGROUP_OOM, EndClass.GLOBAL_OOM)


@dataclass(frozen=True, slots=True)
class _End:
    """An end that is being looked into; without a process where a whole container vanished."""

    watch: Watch
    process: ProcessReader | None
    latch: ends.Latch
    last_sample: Sample | None
    others: tuple[ProcessReader, ...]


class Endings:
    """Watches pidfds in the running loop. `recorded` are the sessions whose end is already in the record."""

    def __init__(self, hub: Hub, recorded: set[str], refining: Refining) -> None:
        self._hub = hub
        self._refining = refining
        self._boxes = f"{hub.settings.dir}/boxes"
        self._recorded = recorded
        self.changed: Callable[[], object] = _nothing
        """Called when the board should be written anew at once."""
        self._refreshing = False
        self.watches: Iterable[Watch] = ()
        """All models: those in one cgroup share its counters of kills."""
        self._watched: dict[int, tuple[Watch, ProcessReader]] = {}
        self._tasks: dict[asyncio.Task[None], _End] = {}

    def watch(self, watch: Watch, process: ProcessReader) -> None:
        """Wake up at the end of this process. Harmless if it is watched already or has no pidfd."""
        pidfd = process.seen.pidfd
        if pidfd is None or pidfd in self._watched or process.ended is not None:
            return
        self._watched[pidfd] = (watch, process)
        asyncio.get_running_loop().add_reader(pidfd, self._wake, pidfd)

    def unwatch(self, process: SeenProcess) -> None:
        """Forget a process, before its descriptors are closed."""
        pidfd = process.pidfd
        if pidfd is not None and self._watched.pop(pidfd, None) is not None:
            asyncio.get_running_loop().remove_reader(pidfd)

    def looked_into(self) -> list[SeenProcess]:
        """Give the processes whose ends are being looked into: they may be out of sight before they are told."""
        return [end.process.seen for end in self._tasks.values() if end.process is not None]

    def notice(self) -> None:
        """Deal with every end that is already there, before anything newer: a stalled loop wakes up in any order."""
        poll = select.poll()
        for pidfd in self._watched:
            poll.register(pidfd, select.POLLIN)
        for pidfd, _ in poll.poll(0):
            self._wake(pidfd)

    def ended(self, watch: Watch, process: ProcessReader) -> None:
        """Deal with an end, once: what would be gone in a moment is read before anything else."""
        if process.ended is not None:
            return
        latch = self._latch(watch, process)
        process.alive, process.ended = False, latch.ended
        self.unwatch(process.seen)
        self._begin(watch, process, latch)

    def vanished(self, watch: Watch) -> None:
        """Deal with the end, once, of a container that is seen without its processes: its cgroup was removed."""
        if watch.died is None:
            self._begin(watch, None, self._latch(watch, None))

    def _begin(self, watch: Watch, process: ProcessReader | None, latch: ends.Latch) -> None:
        watch.quiet.end(latch.ended, latch.levels_after, self._hub.node.read())
        if latch.main:
            watch.died, watch.answered_failing = latch.ended, None
            watch.unseen.forget()
            self._hub.livez.forget(watch.name)
        others = () if watch.reader is None else tuple(one for one in watch.reader.processes if one is not process)
        end = _End(watch, process, latch, None if watch.history is None else watch.history.latest, others)
        task = asyncio.get_running_loop().create_task(self._conclude(end), name="end")
        self._tasks[task] = end
        self.refresh()
        task.add_done_callback(self._done)

    def tell_unseen(self, watch: Watch, sample: Sample) -> None:
        """Make the incident of OOM kills in the model's cgroup that no process in sight has suffered, once due."""
        reader = watch.reader
        if not watch.unseen.waiting or reader is None or reader.main is None:
            return
        self.notice()
        if self._tasks or not reader.main.alive:  # an end that is being looked into may account for them
            return
        sharing = self._sharing(watch)
        step = watch.unseen.due(sample.at, dying=any(_any_dying(one, sample) for one in sharing))
        if step is None:
            return
        for sharer in sharing:
            sharer.unseen.forget()
        incident = self.publish(watch.name, self._unseen_evidence(watch, reader, step), sample)
        if incident is not None:
            self._say(watch, incident.life, "child_ended", incident.verdict.summary, _fields(incident))
        for sharer in sharing:
            sharer.quiet.end(sample.at, sample.levels, sample.node)
            sharer.quiet.begin_anew()

    def _unseen_evidence(self, watch: Watch, reader: ModelReader, step: unseen.Step) -> EndEvidence:
        hub, after, base = self._hub, reader.read_levels(full=True), watch.quiet.base
        stranger = Unknown(Why.HIDDEN, "process", detail="it was not handed over")
        return EndEvidence(
            life=unseen.life_of(hub.boot_id, after[0]),
            began_monotonic_s=None if reader.main is None else reader.main.began_s,
            node_pid=None,
            main=False,
            seen=False,
            ended=step.at,
            wait_status=stranger,
            levels=ends.pair(step.before, after),
            hidden_ancestors=reader.seen.hidden_ancestors,
            node_oom_kill_delta=ends.oom_kill_delta(base.node, hub.node.oom_kills()),
            node_available_ratio=ends.available_ratio(base.node),
            kmsg=hub.kmsg.since(step.at.monotonic_s - ends.KMSG_SECONDS),
            box=stranger,
            liveness_failures_answered=0,
            others_alive=reader.living,
        )

    async def drain(self) -> None:
        """Wait until every end that was noticed is published."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def refine(self, model: str, told: SupervisorEnd) -> bool:
        """Judge an end of a model anew by what its supervisor says of it; see `sidecar.refining`."""
        return self._refining.hear(model, told)

    def publish(
        self,
        model: str,
        evidence: EndEvidence,
        last_sample: Sample | None = None,
        process: SeenProcess | None = None,
    ) -> Incident | None:
        """Make the incident, file and record it. None: it is recorded already, or a child had done its work."""
        life = evidence.life
        if life.session in self._recorded:
            return None
        self._recorded.add(life.session)
        if not evidence.main and ends.left_well(evidence):
            return None
        evidence = self._refining.completed(model, evidence)
        verdict = classify(evidence)
        now = self._hub.clock.now()
        incident = Incident(
            id=life.session,
            at=evidence.ended,
            model=model,
            life=life,
            main=evidence.main,
            verdict=verdict,
            verdict_after_seconds=now.monotonic_s - evidence.ended.monotonic_s,
            last_sample=None if last_sample is None else pack(last_sample),
            levels_after=pack([level.after for level in evidence.levels]),
        )
        kept = lean(evidence)
        self._hub.recorder.put_incident(incident, kept)
        self._refining.open(incident, kept, process)
        return incident

    def refresh(self) -> None:
        """Have the board written anew at the next turn of the loop: once, however many ends call for it."""
        if not self._refreshing:
            self._refreshing = True
            asyncio.get_running_loop().call_soon(self._refresh)

    def _refresh(self) -> None:
        self._refreshing = False
        self.changed()

    def _wake(self, pidfd: int) -> None:
        watch, process = self._watched[pidfd]
        self.ended(watch, process)

    def _latch(self, watch: Watch, process: ProcessReader | None) -> ends.Latch:
        hub, reader, now = self._hub, watch.reader, self._hub.clock.now()
        assert reader is not None, "an end is noticed only while its model is seen"
        after = reader.read_levels(full=True)
        watch.unseen.tick(now, after)
        box = Unknown(Why.HIDDEN, "black box") if process is None else process.read_box()
        node_kills = hub.node.oom_kills()
        main, base = reader.main, self._base(watch, process, now)
        failing = hub.livez.failing(watch.name, now)
        return ends.Latch(
            life=ends.life_of_cgroup(hub.boot_id, after[0].id) if process is None else process.seen.life,
            began_monotonic_s=None if process is None else process.began_s,
            node_pid=None if process is None else process.node_pid,
            main=process is None or process.main,
            main_was_alive=main is not None and main.alive,
            ended=now,
            levels=ends.pair(base.levels, after),
            hidden_ancestors=reader.seen.hidden_ancestors,
            node_oom_kill_delta=ends.oom_kill_delta(base.node, node_kills),
            node_available_ratio=ends.available_ratio(base.node),
            box=box,
            liveness_failures_answered=self._failures(watch, failing, now),
            liveness_failing=None if failing is None else (failing.first, failing.last),
            liveness_threshold=hub.settings.health.failure_threshold,
        )

    def _base(self, watch: Watch, process: ProcessReader | None, now: Instant) -> Base:
        """Give what the end is compared with. A first reading with kills that came with the end tells of no before."""
        base, first = watch.quiet.base, watch.quiet.first
        if process is None or process.base is None:
            return base
        if not process.base.levels and first is not None and now.monotonic_s - first.at_s < ends.FIRST_SECONDS:
            counted = memcg.oom_kills(first.levels[0].memory) if first.levels else Known(0)
            if isinstance(counted, Known) and counted.value:
                return Base(node=self._hub.nodes.before(process.began_s))
        return later(base, process.base)

    def _failures(self, watch: Watch, failing: Failing | None, now: Instant) -> int:
        """Give the failing answers in a row; where nobody asks, how many there would have been."""
        if failing is not None:
            return failing.failures
        asked = self._hub.livez.asked(watch.name)
        return 0 if asked else _failures_due(watch, now, self._hub.settings.health.period_seconds)

    async def _conclude(self, end: _End) -> None:
        hub, process, latch = self._hub, end.process, end.latch
        settled = ends.Settled(Unknown(Why.HIDDEN, "process", detail="only the container's cgroup is seen"))
        fault: Reading[NativeFault] = NOT_LOOKED_FOR
        if process is not None:
            settled = await ends.settle(process.seen, hub.clock, lambda: self._note(process.seen))
            box = process.read_box()  # the guard of a process that exits in order writes its mark until the very end
            latch = latch if isinstance(box, Unknown) else replace(latch, box=box, life=process.seen.life)
            if isinstance(settled.status, Unknown) or settled.status.value.signal is not None:
                fault = await self._fault(process.seen)
        log = hub.kmsg.since(latch.ended.monotonic_s - ends.KMSG_SECONDS)
        others_alive = sum(other.alive for other in end.others)  # of that life: the next one may be here already
        evidence = ends.evidence(latch, settled.status, log, others_alive)
        told = replace(evidence, sigterm_wall_s=settled.sigterm_wall_s, runner_kills=settled.runner_kills)
        self._tell(end, replace(told, fault=fault))

    async def _fault(self, process: SeenProcess) -> Reading[NativeFault]:
        """Read the trace of a native fault, in a thread, as far as the volume does not hang."""
        try:
            async with asyncio.timeout(ends.SETTLE_SECONDS):
                return await asyncio.to_thread(leavings.fault_of, self._boxes, process.life.session)
        except TimeoutError:
            return Unknown(Why.FAILED, "trace of a native fault", detail="the shared directory does not answer")

    async def _note(self, process: SeenProcess) -> EndNote | None:
        """Look for the note of its end, in a thread: the volume may hang."""
        note = await asyncio.to_thread(leavings.note_of, self._boxes, process.life)
        if note is not None:
            process.aliases.add(note.life.session)
        return note

    def _tell(self, end: _End, evidence: EndEvidence) -> None:
        watch, life = end.watch, evidence.life
        if evidence.main and watch.died is end.latch.ended:  # the next life may have begun meanwhile
            watch.left_well = ends.left_well(evidence)
        if not evidence.main and not end.latch.main_was_alive:
            self._recorded.add(life.session)
            self._say(watch, life, "child_ended", f"process {life.pid} ended after its model's main process", {})
        elif (incident := self._publish(end, evidence)) is not None:
            if incident.verdict.end_class in _BY_KERNEL:
                self._account(watch, evidence)
            watch.note_crash(ends.crash_of_engine(evidence, incident.verdict))
            kind = "model_ended" if evidence.main else "child_ended"
            self._say(watch, life, kind, incident.verdict.summary, _fields(incident))
        elif not evidence.main:
            self._say(watch, life, "child_ended", f"process {life.pid} exited with status 0", {})
        if end.process is not None:
            self._recorded |= end.process.seen.aliases
            if not evidence.main:
                self._forget(watch, end.process)

    def _publish(self, end: _End, evidence: EndEvidence) -> Incident | None:
        process = None if end.process is None else end.process.seen
        return self.publish(end.watch.name, evidence, end.last_sample, process)

    def _account(self, watch: Watch, evidence: EndEvidence) -> None:
        """Take a kill off the account of every model of the cgroup; that of a main process stands for all around it."""
        node, after = self._hub.node.read(), tuple(level.after for level in evidence.levels)
        killed = kills(evidence.levels[0]) if evidence.levels else None
        for sharer in self._sharing(watch):
            if sharer is not watch:
                sharer.quiet.end(evidence.ended, after, node)
            if isinstance(killed, Known) and killed.value.delta == 1:  # a group kill counts its first victim twice
                sharer.quiet.begin_anew()
            if evidence.main:
                sharer.unseen.forget()
            else:
                sharer.unseen.account()

    def _sharing(self, watch: Watch) -> list[Watch]:
        """Give the models of the same cgroup, this one first."""
        own = watch.own_level
        others = () if own is None else self.watches
        return [watch, *(one for one in others if one is not watch and one.own_level == own)]

    def _say(self, watch: Watch, life: LifeId, kind: str, text: str, fields: Mapping[str, Scalar]) -> None:
        now: Instant = self._hub.clock.now()
        self._hub.journal.say(now, watch.name, kind, text, {"pid": life.pid, "session": life.session, **fields})

    def _forget(self, watch: Watch, process: ProcessReader) -> None:
        """Close what was seen of a child; the main process stays as the model's last word."""
        if watch.reader is not None and watch.release is not None and process in watch.reader.processes:
            watch.reader.forget(process)
            watch.release(watch.reader.seen, process.seen)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self.refresh()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._hub.degraded.set("verdict", f"{type(error).__name__}: {error}")
            self._hub.log.error("verdict_failed", error=f"{type(error).__name__}: {error}")


def _nothing() -> None:
    """Stand in until somebody wants to hear."""


def _fields(incident: Incident) -> Mapping[str, Scalar]:
    verdict = incident.verdict
    return {
        "incident": incident.id,
        "class": verdict.end_class.value,
        "confidence": verdict.confidence.value,
        "cgroup": verdict.level,
        "main": incident.main,
        "verdict_after_seconds": round(incident.verdict_after_seconds, 3),
    }


def _any_dying(watch: Watch, newest: Sample) -> bool:
    sample = newest if watch.name == newest.model or watch.history is None else watch.history.latest
    return any(unseen.is_dying(process) for process in sample.processes)


def _failures_due(watch: Watch, now: Instant, period_seconds: float) -> int:
    """How many probes of the usual period would have been answered with failure, without a break."""
    if watch.failing_since is None:
        return 0
    return 1 + int((now.monotonic_s - watch.failing_since.monotonic_s) / period_seconds)
