"""Verdicts judged anew as more comes to be known, under the same incident; and when an end is counted.

Theory
    * The first verdict is due within a second. Then come, within seconds: what the runner notes, the rest of the
      black box, the kernel log, a GPU that is read late, and what the supervisor says. Each joins the evidence, which
      is judged as a whole again; `history` keeps what was thought before.
    * What a supervisor says may come before the end is noticed: it waits for it.
    * A counter never falls, so an end is counted when its verdict has settled: `COUNT_SECONDS` after it, under the
      class that stands then. The record says in the incident what it was counted as, so that a sidecar that dies in
      between leaves that to the next one, and no end is counted twice.
    * The evidence of the newest ends is in the record: the next sidecar goes on with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Final

from guard.kernel.reader import KeptFile
from guard.model import Known, LifeId, Reading, Unknown, Why
from sidecar import leavings
from sidecar.board import Event, Incident
from sidecar.cases import NOTICE_SECONDS, Case, Cases, is_near
from sidecar.collect import exit_status
from sidecar.collect.exit_status import from_raw
from sidecar.ends import KMSG_SECONDS, crash_of_engine, kills_of, left_well
from sidecar.hub import Hub
from sidecar.journal import Scalar
from sidecar.leavings import Left
from sidecar.outputs.record_store import Loaded
from sidecar.past import Past
from sidecar.sample import Instant
from sidecar.sight.seen import SeenProcess
from sidecar.verdict.device import AFTER_SECONDS, BEFORE_SECONDS
from sidecar.verdict.facts import FATAL_BEFORE_SECONDS
from sidecar.verdict.joining import Later, joined
from sidecar.verdict.supervisor_values import SupervisorEnd
from sidecar.verdict.values import NOT_LOOKED_FOR, ChildEnd, EndEvidence, GpuEvent, WaitStatus
from sidecar.watch import Watch

LOOKS_SECONDS: Final = (1.0, 3.0, 10.0)
"""After an end: when it is looked for what came to be known, in case nobody tells."""
COUNT_SECONDS: Final = LOOKS_SECONDS[-1]
_WAITING: Final = 16
_NO_BOX: Final = Unknown(Why.MISSING, "black box")
_NO_STATUS: Final = Unknown(Why.NOT_SAMPLED, "wait status")


class Refining:
    """See the module's docstring. Needs a running loop."""

    def __init__(self, hub: Hub, past: Past) -> None:
        self._hub = hub
        self._past = past
        self._cases = Cases()
        self._waiting: deque[tuple[str, SupervisorEnd, float]] = deque(maxlen=_WAITING)
        self._gpu: deque[GpuEvent] = deque(maxlen=_WAITING)
        self._tasks: set[asyncio.Task[None]] = set()
        self.watches: Iterable[Watch] = ()
        self.changed: Callable[[], object] = int
        """Called when the board should be written anew."""

    def completed(self, model: str, evidence: EndEvidence) -> EndEvidence:
        """Add what was heard before the end was noticed: of GPUs, and from supervisors."""
        now_s = self._hub.clock.now().monotonic_s
        told = []
        for one in tuple(self._waiting):
            whose, word, heard_s = one
            fits = whose == model and evidence.main and is_near(evidence, word)
            if fits or now_s - heard_s > NOTICE_SECONDS:
                self._waiting.remove(one)
            if fits:
                told.append(word)
        later = Later(
            gpu=self.gpu_around(evidence.ended), children=self._children(model, evidence), supervisor=tuple(told)
        )
        return joined(evidence, later)

    def _children(self, model: str, evidence: EndEvidence) -> tuple[ChildEnd, ...]:
        """Give the ends of processes of a model shortly before that of its main process."""
        ended = [one.incident for one in self._cases if one.incident.model == model and not one.incident.main]
        at_s = evidence.ended.monotonic_s
        near = [one for one in ended if 0 <= at_s - one.at.monotonic_s <= FATAL_BEFORE_SECONDS]
        return tuple(_as_child(one) for one in near) if evidence.main else ()

    def gpu_around(self, ended: Instant) -> tuple[GpuEvent, ...]:
        """Give what happened to the GPUs around an end; which of it matters the verdict knows."""
        failing = self._hub.settings.health.period_seconds * self._hub.settings.health.failure_threshold
        since_s = ended.monotonic_s - BEFORE_SECONDS - failing
        return tuple(one for one in self._gpu if since_s <= one.at.monotonic_s <= ended.monotonic_s + AFTER_SECONDS)

    def open(self, incident: Incident, evidence: EndEvidence, process: SeenProcess | None = None) -> None:
        """File an end that was just judged, and look for what comes to be known of it."""
        (self._watch(incident.model) or self._past).file(incident)
        pidfd = None if process is None or isinstance(evidence.wait_status, Known) else _copy(process.pidfd)
        self._take(Case(incident=incident, evidence=evidence, process=process, pidfd=pidfd))
        if not incident.main:
            self._tell_main(incident)

    def _tell_main(self, child: Incident) -> None:
        """Have the end of a main process that was judged before that of its child know of it."""
        for case in self._cases:
            if case.incident.main and case.incident.model == child.model and self._is_of_this_boot(case):
                children = self._children(child.model, case.evidence)
                self._judge(case, Later(children=tuple(one for one in children if one.incident == child.id)))

    def hear(self, model: str, told: SupervisorEnd) -> bool:
        """Take what a supervisor says of an end of this model, again if it says more; tell whether the end is known.

        What it says of an end that is not noticed yet waits for it.
        """
        case = self._cases.told_of(model, told)
        if case is None:
            self._waiting.append((model, told, self._hub.clock.now().monotonic_s))
            return False
        self._judge(case, Later(supervisor=(told,)))
        return True

    def hear_of_gpu(self, event: Event) -> None:
        """Take an event of the journal, if it is about a GPU: ends around it may follow from it."""
        if event.kind not in ("gpu_xid", "gpu_lost"):
            return
        gpu, code = event.fields.get("gpu"), event.fields.get("code")
        found = GpuEvent(at=event.at, gpu=int(gpu or 0), code=code if isinstance(code, int) else None)
        self._gpu.append(found)
        for case in self._cases:
            if found in self.gpu_around(case.evidence.ended) and self._is_of_this_boot(case):
                self._judge(case, Later(gpu=(found,)))

    def found(self, life: LifeId, model: str | None, left: Left) -> bool:
        """Take what lies in the shared directory of a process; tell whether its end is one that is known here."""
        case = self._cases.of(life, model)
        if case is None:
            return False
        later = _later(left)
        own = life.session == case.evidence.life.session
        self._judge(case, later if own else replace(later, box=_NO_BOX, fault=NOT_LOOKED_FOR))
        return True

    def restore(self, known: Loaded) -> None:
        """Go on with what the record knew. What was found here before it could be read, and it knew, goes by it."""
        for life in known.lives:
            self._cases.drop(life.session)
        for incident in reversed(known.incidents):
            evidence = known.evidence.get(incident.id)
            if evidence is not None:
                self._take(Case(incident=incident, evidence=evidence))
            else:
                self._counted(incident)

    def close(self) -> None:
        """Look no more. What is not counted by now the next sidecar counts."""
        for task in self._tasks:
            task.cancel()

    def _take(self, case: Case) -> None:
        pushed_out = self._cases.add(case)
        if pushed_out is not None:
            self._begin(self._leave(pushed_out))
        self._begin(self._follow(case))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="refine")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._hub.degraded.set("verdict", f"{type(error).__name__}: {error}")

    async def _follow(self, case: Case) -> None:
        """Look again some times, then count it."""
        slept_s = 0.0
        for at_s in LOOKS_SECONDS:
            await self._hub.clock.sleep(at_s - slept_s)
            slept_s = at_s
            if not self._cases.holds(case):
                case.let_go()
                return
            await self._look(case)
        self._settle(case)

    async def _leave(self, case: Case) -> None:
        """Look at one that is pushed out a last time, then count it: nothing that is found later reaches it."""
        await self._look(case)
        self._settle(case)

    async def _look(self, case: Case) -> None:
        """Read again what may have come."""
        evidence = case.evidence
        left = await asyncio.to_thread(leavings.left_by, f"{self._hub.settings.dir}/boxes", evidence.life)
        later = _later(left)
        process = case.process
        if process is not None:
            status = exit_status.of(process)
            if isinstance(status, Unknown) and case.pidfd is not None:  # its parent may have taken its time to reap it
                status = exit_status.from_pidfd(case.pidfd.fd)
            if isinstance(status, Known):
                later = replace(later, wait_status=status)
            if process.sigterm_from_runner_wall_s is not None:
                later = replace(later, sigterm_wall_s=process.sigterm_from_runner_wall_s)
        if self._is_of_this_boot(case):
            later = replace(later, kmsg=self._hub.kmsg.since(evidence.ended.monotonic_s - KMSG_SECONDS))
        self._judge(case, later)

    def _is_of_this_boot(self, case: Case) -> bool:
        return case.evidence.life.boot_id == self._hub.boot_id

    def _judge(self, case: Case, later: Later) -> None:
        before, evidence = case.incident, joined(case.evidence, later)
        if evidence == case.evidence:
            return
        old = case.evidence
        incident, changed = case.judge(evidence, self._hub.clock.now())
        self._hub.recorder.refine_incident(incident, evidence)
        if incident.verdict == before.verdict:
            return
        self._show(incident)
        watch = self._watch(incident.model)
        if watch is not None:
            if evidence.main and watch.died == evidence.ended:
                watch.left_well = left_well(evidence)
            if crash_of_engine(old, before.verdict) is None:
                watch.note_crash(crash_of_engine(evidence, incident.verdict))
        if changed:
            self._say(incident, before)
        self.changed()

    def _say(self, incident: Incident, before: Incident) -> None:
        now, verdict = self._hub.clock.now(), incident.verdict
        text = f"{incident.history[-1].because}: {verdict.summary}"
        fields: dict[str, Scalar] = {
            "incident": incident.id,
            "session": incident.life.session,
            "main": incident.main,
            "class": verdict.end_class.value,
            "confidence": verdict.confidence.value,
            "cgroup": verdict.level,
            "from_class": before.verdict.end_class.value,
            "from_confidence": before.verdict.confidence.value,
        }
        self._hub.journal.say(now, incident.model, "verdict_refined", text, fields)

    def _settle(self, case: Case) -> None:
        """Count an end, once: whoever still looks at the case sees that it is counted."""
        case.let_go()
        case.incident = self._counted(case.incident)

    def _counted(self, incident: Incident) -> Incident:
        """Count an end of a main process that is not counted, under the class that stands now."""
        if not incident.main or incident.counted_as is not None:
            return incident
        counted = replace(incident, counted_as=incident.verdict.end_class)
        watch = self._watch(incident.model)
        if watch is not None:
            watch.count(counted.verdict.end_class)
        else:
            self._past.count(incident.model, counted.verdict.end_class)
        self._show(counted)
        self._hub.recorder.refine_incident(counted)
        self.changed()
        return counted

    def _show(self, incident: Incident) -> None:
        """Put it in the place of what was shown of it."""
        self._past.replace(incident)
        for watch in self.watches:
            watch.replace(incident)

    def _watch(self, model: str) -> Watch | None:
        return next((watch for watch in self.watches if watch.name == model), None)


def _copy(pidfd: int | None) -> KeptFile | None:
    if pidfd is not None:
        with contextlib.suppress(OSError):  # out of descriptors
            return KeptFile(os.dup(pidfd), "pidfd")
    return None


def _as_child(incident: Incident) -> ChildEnd:
    verdict = incident.verdict
    return ChildEnd(incident=incident.id, at=incident.at, end_class=verdict.end_class, summary=verdict.summary)


def _later(left: Left) -> Later:
    status: Reading[WaitStatus] = _NO_STATUS if left.note is None else Known(from_raw(left.note.wait_status))
    later = Later(wait_status=status, box=left.box, fault=left.fault)
    if left.note is None:
        return later
    return replace(later, sigterm_wall_s=left.note.sigterm_wall_s, runner_kills=kills_of(left.note))
