"""Watching for ends, and what follows from one: latch at once, settle shortly, judge, publish."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from guard.model import Known, LifeId, Unknown
from sidecar import ends
from sidecar.board import Incident
from sidecar.collect.processes import ProcessReader
from sidecar.hub import Hub
from sidecar.journal import Scalar
from sidecar.sample import Instant
from sidecar.sight.seen import SeenProcess
from sidecar.verdict.classify import classify
from sidecar.verdict.values import EndEvidence, Verdict
from sidecar.watch import Watch

KEPT_INCIDENTS: Final = 20
"""A model, on the board. The record holds more."""


@dataclass(frozen=True, slots=True)
class _End:
    """An end that is being looked into."""

    watch: Watch
    process: ProcessReader
    latch: ends.Latch


class Endings:
    """Watches pidfds in the running loop. `recorded` are the sessions whose end is already in the record."""

    def __init__(self, hub: Hub, recorded: set[str]) -> None:
        self._hub = hub
        self._recorded = recorded
        self.changed: Callable[[], object] = _nothing
        """Called when the board should be written anew at once."""
        self._watched: dict[int, tuple[Watch, ProcessReader]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

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

    def ended(self, watch: Watch, process: ProcessReader) -> None:
        """Deal with an end, once: what would be gone in a moment is read before anything else."""
        if process.ended is not None:
            return
        latch = self._latch(watch, process)
        process.alive, process.ended = False, latch.ended
        self.unwatch(process.seen)
        watch.quiet.explained(latch.ended)
        if process.main:
            watch.died = latch.ended
        task = asyncio.get_running_loop().create_task(self._conclude(_End(watch, process, latch)), name="end")
        self._tasks.add(task)
        self._soon()
        task.add_done_callback(self._done)

    async def drain(self) -> None:
        """Wait until every end that was noticed is published."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def publish(self, watch: Watch, evidence: EndEvidence, verdict: Verdict) -> Incident | None:
        """Make the incident, unless the record has it already, or it is none: a child that had done its work."""
        life = evidence.life
        if life.session in self._recorded:
            return None
        self._recorded.add(life.session)
        if not evidence.main and _left_well(evidence):
            return None
        now = self._hub.clock.now()
        incident = Incident(
            id=life.session,
            at=evidence.ended,
            model=watch.name,
            life=life,
            main=evidence.main,
            verdict=verdict,
            verdict_after_seconds=now.monotonic_s - evidence.ended.monotonic_s,
            last_sample=None if watch.history is None else watch.history.latest,
            levels_after=tuple(level.after for level in evidence.levels),
        )
        watch.incidents = (incident, *watch.incidents)[:KEPT_INCIDENTS]
        if incident.main:
            watch.ends[verdict.end_class.value] = watch.ends.get(verdict.end_class.value, 0) + 1
        self._hub.recorder.put_incident(incident)
        return incident

    def _soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.changed)

    def _wake(self, pidfd: int) -> None:
        watch, process = self._watched[pidfd]
        self.ended(watch, process)

    def _latch(self, watch: Watch, process: ProcessReader) -> ends.Latch:
        hub, reader, now = self._hub, watch.reader, self._hub.clock.now()
        assert reader is not None, "a process is watched only while its model is seen"
        after = reader.read_levels(full=True)
        box = process.read_box()
        kills = hub.node.oom_kills()
        main = reader.main
        return ends.Latch(
            life=process.seen.life,
            main=process.main,
            main_was_alive=main is not None and main.alive,
            ended=now,
            levels=ends.pair(watch.quiet.levels, after),
            hidden_ancestors=reader.seen.hidden_ancestors,
            node_oom_kill_delta=ends.oom_kill_delta(watch.quiet.node, kills),
            node_available_ratio=ends.available_ratio(watch.quiet.node),
            box=box,
            liveness_failures_answered=_failures_answered(watch, now, hub.settings.health.period_seconds),
        )

    async def _conclude(self, end: _End) -> None:
        hub, watch, process = self._hub, end.watch, end.process
        status = await ends.settle(process.seen, hub.clock)
        box = process.read_box()  # the guard of a process that exits in order writes its mark until the very end
        latch = end.latch if isinstance(box, Unknown) else replace(end.latch, box=box, life=process.seen.life)
        log = hub.kmsg.since(latch.ended.monotonic_s - ends.KMSG_SECONDS)
        evidence = ends.evidence(latch, status, log, others_alive=0 if watch.reader is None else watch.reader.living)
        self._tell(end, evidence)

    def _tell(self, end: _End, evidence: EndEvidence) -> None:
        watch, life = end.watch, evidence.life
        if not evidence.main and not end.latch.main_was_alive:
            self._say(watch, life, "child_ended", f"process {life.pid} ended after its model's main process", {})
            self._forget(end)
            return
        verdict = classify(evidence)
        incident = self.publish(watch, evidence, verdict)
        if incident is not None:
            kind = "model_ended" if evidence.main else "child_ended"
            fields: dict[str, Scalar] = {
                "incident": incident.id,
                "class": verdict.end_class.value,
                "confidence": verdict.confidence.value,
                "cgroup": verdict.level,
                "main": evidence.main,
                "verdict_after_seconds": round(incident.verdict_after_seconds, 3),
            }
            self._say(watch, life, kind, verdict.summary, fields)
        elif not evidence.main and _left_well(evidence):
            self._say(watch, life, "child_ended", f"process {life.pid} exited with status 0", {})
        if not evidence.main:
            self._forget(end)

    def _say(self, watch: Watch, life: LifeId, kind: str, text: str, fields: Mapping[str, Scalar]) -> None:
        now: Instant = self._hub.clock.now()
        self._hub.journal.say(now, watch.name, kind, text, {"pid": life.pid, "session": life.session, **fields})

    def _forget(self, end: _End) -> None:
        """Close what was seen of a child; the main process stays as the model's last word."""
        reader, release = end.watch.reader, end.watch.release
        if reader is not None and release is not None and end.process in reader.processes:
            reader.forget(end.process)
            release(reader.seen, end.process.seen)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._soon()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._hub.degraded.set("verdict", f"{type(error).__name__}: {error}")
            self._hub.log.error("verdict_failed", error=f"{type(error).__name__}: {error}")


def _nothing() -> None:
    """Stand in until somebody wants to hear."""


def _left_well(evidence: EndEvidence) -> bool:
    """Tell an exit with status 0, by the wait status or else by the guard's mark."""
    status, box = evidence.wait_status, evidence.box
    if isinstance(status, Known):
        return status.value.exit_code == 0
    mark = box.value.exit_mark if isinstance(box, Known) else None
    return mark is not None and mark.status == 0


def _failures_answered(watch: Watch, now: Instant, period_seconds: float) -> int:
    """How many probes of the usual period can have been answered with failure, without a break."""
    if watch.failing_since is None:
        return 0
    return 1 + int((now.monotonic_s - watch.failing_since.monotonic_s) / period_seconds)
