"""The judge: where on each axis of the table the evidence lies, and the answer of the row that fits.

Theory of operation
    * Patience has two bounds. The credit runs from the last sign of the serving loop (tokens, or a late answer) and
      is refilled by the next; kernel counters keep the model alive within it but never refill it. The cap runs from
      the moment the plain rule failed the model without one answer since, and nothing but an answer restarts it.
    * Pressure that comes and goes restarts neither: both run on while it is away.
    * Work that the guard declares is excused while it is within its bound: `at_most_seconds`, or for a load the
      start-up time since its own words last moved, as long as bytes or memory move. Calls that hold the GIL for
      minutes (safetensors.torch.load of bytes, torch.jit.load) say nothing themselves; their memory moves. Each of
      several has its own clock, so none that comes and goes makes another one's bound begin anew.
    * Time comes from `evidence.at.monotonic_s` alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from guard.model import Known, Operation, OperationKind, Reading, Unknown
from sidecar.health.memory import (
    JudgeMemory,
    WorkSeen,
    count,
    engine_is_dead,
    in_flight_failures,
    may_excuse,
    of_this_life,
    replaced_in_time,
    standing,
    without_replaced,
)
from sidecar.health.table import Case, Leniency, Life, Movement, Row, Squeeze, Standing, Work, look_up
from sidecar.health.values import HealthEvidence, InFlight, Judgement, Pressure, Progress, Rules
from sidecar.units import human_bytes, human_seconds, human_share

__all__ = ["JudgeMemory", "judge"]

READY_AFTER_ANSWERS: Final = 2
"""In-time answers in a row before a model that shed load is ready again; one may be luck between two stalls."""

ASYNCIO_SILENCE_SECONDS: Final = 20.0
"""An event loop that no one called the serving loop may compute in a callback, slowly while weights are read again.

The plain rule takes 21 s with Kubernetes' numbers, so this delays no answer."""

_PACE_SECONDS: Final = 2.0
"""A pace needs two ticks and more; the first second of a load reads what is cached."""

_SAID_WORKS: Final = 3
"""Operations in flight that the reasons name; a pool of workers may have one each."""

_SQUEEZE: Final = {
    Pressure.NONE: Squeeze.NONE,
    Pressure.RECLAIM: Squeeze.RECLAIM,
    Pressure.THRASH: Squeeze.THRASH,
}


def judge(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> tuple[JudgeMemory, Judgement]:
    """Judge one instant. Start with `JudgeMemory()`; give back the memory that this returns at the next instant."""
    memory = _note_pressure(of_this_life(memory, evidence), evidence)
    memory = replace(memory, works=tuple(_seen(memory, one, evidence) for one in evidence.in_flight))
    work = _work(memory, evidence, rules)
    memory = count(memory, evidence, rules, excused=work is not Work.NONE)
    stands = standing(memory, evidence, rules)
    if stands is Standing.FAILED and memory.failed_s is None:
        memory = replace(memory, failed_s=evidence.at.monotonic_s)
    memory, life = _life(memory, evidence, rules)
    case = Case(
        life=life,
        work=work,
        standing=stands,
        squeeze=_squeeze(memory, evidence, rules),
        movement=_movement(memory, evidence),
        leniency=_leniency(memory, evidence, rules),
    )
    row = look_up(case)
    memory = _note_readiness(memory, row, case)
    return memory, _judgement(memory, evidence, rules, (case, row))


def _life(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> tuple[JudgeMemory, Life]:
    """Tell the life. Whoever asks after an end asks about the next one, and that has not started yet."""
    if evidence.alive != Known(value=False):
        memory = without_replaced(memory, evidence)
        return memory, Life.ENGINE_DEAD if engine_is_dead(memory, evidence, rules) else Life.ALIVE
    dead_s = evidence.at.monotonic_s if memory.dead_s is None else memory.dead_s
    memory = replace(memory, dead_s=dead_s, answered=False, started=False)
    return memory, Life.ENDED if replaced_in_time(memory, evidence, rules) else Life.DEAD


def _note_pressure(memory: JudgeMemory, evidence: HealthEvidence) -> JudgeMemory:
    pressed = isinstance(evidence.pressure, Known) and evidence.pressure.value is not Pressure.NONE
    return replace(memory, pressed_s=evidence.at.monotonic_s) if pressed else memory


def _seen(memory: JudgeMemory, work: InFlight, evidence: HealthEvidence) -> WorkSeen:
    now = evidence.at.monotonic_s
    seen = next((one for one in memory.works if one.key == work.key), None)
    if seen is None:
        return WorkSeen(work.key, now, work.operation.bytes_done, now)
    return replace(seen, moved_s=now) if work.progress == Known(Progress.MOVING) else seen


def _work(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> Work:
    """Tell excused work: a load before anything else, as a model that loads is not ready."""
    if not may_excuse(memory, rules):
        return Work.NONE
    both = zip(memory.works, evidence.in_flight, strict=True)
    found = {_excuse(seen, one, evidence, rules) for seen, one in both}
    return next((work for work in (Work.LOADING, Work.BUSY) if work in found), Work.NONE)


def _excuse(seen: WorkSeen, work: InFlight, evidence: HealthEvidence, rules: Rules) -> Work:
    """Say what one operation excuses. Times are the judge's own: the model's clock may be in another time namespace."""
    now, bound = evidence.at.monotonic_s, work.operation.at_most_seconds
    if bound is not None and now - seen.since_s > bound:
        return Work.NONE
    if work.operation.kind is OperationKind.BUSY:
        return Work.NONE if bound is None else Work.BUSY
    moves = Known(Progress.MOVING) in (work.progress, evidence.kernel_progress)
    within = bound is not None or now - seen.moved_s <= rules.startup_seconds
    return Work.LOADING if within and (moves or now == seen.moved_s) else Work.NONE


def _squeeze(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> Squeeze:
    squeeze = Squeeze.UNKNOWN if isinstance(evidence.pressure, Unknown) else _SQUEEZE[evidence.pressure.value]
    if squeeze in (Squeeze.NONE, Squeeze.UNKNOWN) and memory.pressed_s is not None:
        since = evidence.at.monotonic_s - memory.pressed_s
        return Squeeze.JUST_ENDED if since <= rules.period_seconds + rules.timeout_seconds else squeeze
    return squeeze


def _movement(memory: JudgeMemory, evidence: HealthEvidence) -> Movement:
    if evidence.stopped:
        return Movement.LOOP_STILL
    if evidence.loop_progress == Known(Progress.MOVING):
        return Movement.MOVING
    silent = evidence.at.monotonic_s - (memory.loop_s or memory.first_s or evidence.at.monotonic_s)
    if isinstance(evidence.loop_progress, Known) and (evidence.loop_declared or silent >= ASYNCIO_SILENCE_SECONDS):
        return Movement.LOOP_STILL
    if isinstance(evidence.kernel_progress, Known):
        return Movement.MOVING if evidence.kernel_progress.value is Progress.MOVING else Movement.STILL
    return Movement.UNKNOWN


def _credit_left(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> float:
    """Seconds of patience left: the credit, or what is left of the cap if that is less."""
    if memory.failed_s is None:
        return min(rules.credit_seconds, rules.cap_seconds)
    now = evidence.at.monotonic_s
    refilled = memory.failed_s if memory.loop_s is None else max(memory.failed_s, memory.loop_s)
    return max(0.0, min(rules.credit_seconds - (now - refilled), rules.cap_seconds - (now - memory.failed_s)))


def _leniency(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> Leniency:
    if memory.failed_s is not None and evidence.at.monotonic_s - memory.failed_s >= rules.cap_seconds:
        return Leniency.CAP_SPENT
    return Leniency.LEFT if _credit_left(memory, evidence, rules) > 0 else Leniency.CREDIT_SPENT


def _note_readiness(memory: JudgeMemory, row: Row, case: Case) -> JudgeMemory:
    answers = case.standing in (Standing.ANSWERS, Standing.UNPROBED)
    begun = case.life is Life.ALIVE and answers and case.work is not Work.LOADING
    started = memory.started or begun
    if not row.ready:
        return replace(memory, started=started, shed=memory.started)
    back = memory.answers >= READY_AFTER_ANSWERS or case.standing is Standing.UNPROBED
    return replace(memory, started=started, shed=memory.shed and not back)


def _judgement(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules, found: tuple[Case, Row]) -> Judgement:
    case, row = found
    return Judgement(
        at=evidence.at,
        state=row.state,
        live=row.live,
        ready=row.ready and memory.started and not memory.shed,
        started=memory.started,
        reasons=(row.why, *_details(memory, evidence, rules, case)),
        credit_left_seconds=_credit_left(memory, evidence, rules),
        degraded=tuple(f"{name}: {value}" for name, value in _inputs(evidence) if isinstance(value, Unknown)),
    )


def _inputs(evidence: HealthEvidence) -> tuple[tuple[str, Reading[object]], ...]:
    return (
        ("life of the main process", evidence.alive),
        ("answers of the model", evidence.probe),
        ("memory pressure", evidence.pressure),
        ("progress by kernel counters", evidence.kernel_progress),
        ("progress by loop tokens", evidence.loop_progress),
    )


def _details(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules, case: Case) -> tuple[str, ...]:
    """Give the numbers behind the row, as sentences."""
    said = [_probe_words(memory, evidence, rules), *evidence.pressure_because, *evidence.notes]
    said += [f"engine: {one.summary}" for one in memory.crashes]
    both = zip(memory.works[:_SAID_WORKS], evidence.in_flight, strict=False)
    said += [_operation_words(one.operation, seen, evidence) for seen, one in both]
    if len(memory.works) > _SAID_WORKS:
        said.append(f"{len(memory.works) - _SAID_WORKS} more in flight")
    if evidence.in_flight and not may_excuse(memory, rules):
        said.append(f"work excuses nothing any more: {human_seconds(memory.silent_s)} without an answer outside of it")
    if case.standing is Standing.FAILED and memory.failed_s is not None:
        without = evidence.at.monotonic_s - memory.failed_s
        said.append(
            f"{human_seconds(_credit_left(memory, evidence, rules))} of patience left; failed by the plain rule for "
            f"{human_seconds(without)}, at most {human_seconds(rules.cap_seconds)} are ever excused"
        )
    if memory.shed:
        said.append(f"ready again after {READY_AFTER_ANSWERS} answers in time")
    return tuple(one for one in said if one)


def _probe_words(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> str:
    failures = memory.failures + in_flight_failures(memory, evidence, rules)
    if failures:
        return f"{failures} probes in a row not answered in time, {rules.failure_threshold} fail it"
    if isinstance(evidence.probe, Known):
        return f"last probe: {evidence.probe.value.outcome}, {human_seconds(evidence.probe.value.latency_seconds)}"
    return ""


def _seconds_left(operation: Operation, seen: WorkSeen, now: float) -> float | None:
    """Say how long the rest takes at the mean pace since it was seen first; None before there is one."""
    if operation.bytes_expected is None or operation.bytes_done is None:
        return None
    done, seconds = operation.bytes_done - (seen.bytes_done or 0), now - seen.since_s
    if done <= 0 or seconds < _PACE_SECONDS:
        return None
    return max(0, operation.bytes_expected - operation.bytes_done) * seconds / done


def _operation_words(operation: Operation, seen: WorkSeen, evidence: HealthEvidence) -> str:
    words = [f"{operation.kind} in flight: {operation.label}"]
    if operation.file:
        words.append(f"of {operation.file}")
    if operation.bytes_expected and operation.bytes_done is not None:
        share = human_share(operation.bytes_done / operation.bytes_expected)
        words.append(f"{human_bytes(operation.bytes_done)} of {human_bytes(operation.bytes_expected)} ({share})")
    words.append(f"for {human_seconds(evidence.at.monotonic_s - seen.since_s)}")
    left = _seconds_left(operation, seen, evidence.at.monotonic_s)
    if left is not None:
        words[-1] += f", about {human_seconds(left)} to go"
    if operation.at_most_seconds is not None:
        words.append(f"of at most {human_seconds(operation.at_most_seconds)}")
    return " ".join(words)
