"""A model over time for the tests of the judge: what is so at each second, and when the judge fails it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from guard.model import Known, Operation, Reading, Unknown, Why
from sidecar.health.judge import JudgeMemory, judge
from sidecar.health.values import NO_PROBE, HealthEvidence, InFlight, Judgement, Pressure, Progress, Rules
from sidecar.sample import ProbeOutcome, ProbeResult
from tests.sidecar import making as make

RULES = Rules()
NO_LOOP = Unknown(Why.MISSING, "beat named loop")
NO_WORK = Unknown(Why.MISSING, "operation in flight")
CALM = Known(Pressure.NONE)
STILL = Known(Progress.STILL)
ALIVE = Known(value=True)
TICK = 0.5


@dataclass(frozen=True, kw_only=True)
class Now:
    """What is so at one instant. `latency` is how long a probe started now takes, None for ever."""

    latency: float | None = 0.02
    outcome: ProbeOutcome = ProbeOutcome.OK
    pressure: Reading[Pressure] = CALM
    kernel: Reading[Progress] = STILL
    loop: Reading[Progress] = NO_LOOP
    operation: Operation | None = None
    operation_progress: Reading[Progress] = NO_WORK
    others: tuple[Operation, ...] = ()
    alive: Reading[bool] = ALIVE
    session: str = "s1"
    removed: bool = False
    declared: bool = True
    engines: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    stopped: bool = False
    probed: bool = True


World = Callable[[float], Now]


def play(world: World, until: float, rules: Rules = RULES, *, begin: float = 0.0) -> Iterator[Judgement]:
    """Probe as the sidecar does (giving up at the period) and judge at every tick."""
    memory, last, started, due = JudgeMemory(), None, None, begin
    now = begin
    while now <= until:
        is_now = world(now)
        if started is not None:
            asked = world(started)
            waited = now - started
            if asked.latency is not None and waited >= asked.latency:
                last = ProbeResult(started=make.at(started), latency_seconds=asked.latency, outcome=asked.outcome)
                started = None
            elif waited >= max(rules.period_seconds, rules.timeout_seconds):
                last = ProbeResult(started=make.at(started), latency_seconds=waited, outcome=ProbeOutcome.TIMEOUT)
                started, due = None, now
        if started is None and now >= due and is_now.probed:
            started, due = now, now + rules.period_seconds
        memory, judgement = judge(memory, evidence(now, is_now, last, started), rules)
        yield judgement
        now += TICK


def evidence(now: float, is_now: Now, last: ProbeResult | None = None, started: float | None = None) -> HealthEvidence:
    """Make the evidence of one instant."""
    waiting = Unknown(Why.NOT_SAMPLED, "probe")
    return HealthEvidence(
        at=make.at(now),
        alive=is_now.alive,
        probe=(waiting if last is None else Known(last)) if is_now.probed else NO_PROBE,
        probe_in_flight_since=None if started is None else make.at(started),
        pressure=is_now.pressure,
        pressure_because=(),
        kernel_progress=is_now.kernel,
        loop_progress=is_now.loop,
        in_flight=in_flight(is_now),
        session=is_now.session,
        removed=is_now.removed,
        loop_moved=is_now.loop == Known(Progress.MOVING),
        loop_declared=is_now.declared,
        engines=is_now.engines,
        loaded=is_now.loaded,
        stopped=is_now.stopped,
    )


def in_flight(is_now: Now) -> tuple[InFlight, ...]:
    """Give the work in flight; what others do says nothing of itself."""
    mine = () if is_now.operation is None else (is_now.operation,)
    progress = {id(is_now.operation): is_now.operation_progress}
    return tuple(
        InFlight(f"{one.label} {one.started_monotonic_s}", one, progress.get(id(one), NO_WORK))
        for one in (*mine, *is_now.others)
    )


def at_the_end(world: World, until: float, rules: Rules = RULES) -> Judgement:
    """Judge at the end."""
    *_, last = play(world, until, rules)
    return last


def failed_at(world: World, until: float, rules: Rules = RULES) -> float | None:
    """Say when liveness failed first."""
    return next((one.at.monotonic_s for one in play(world, until, rules) if not one.live), None)


def kubelet_fails_at(hang: float, rules: Rules = RULES) -> float:
    """Say when a plain prober that probes at 0, P, 2P, ... has failed a model that hangs from `hang` on."""
    first = -(-hang // rules.period_seconds) * rules.period_seconds
    return first + (rules.failure_threshold - 1) * rules.period_seconds + rules.timeout_seconds


def hang_at(when: float, **so: object) -> World:
    """Answer until then, and never again."""
    return lambda now: replace(Now(**so), latency=0.02 if now < when else None)  # type: ignore[arg-type]


def load(label: str = "torch.load", *, started: float = 0.0, at_most: float | None = None) -> Operation:
    """Make a load in flight."""
    return replace(make.load(label, 1 << 30, started=started), at_most_seconds=at_most)


PRESSED: dict[str, object] = {"pressure": Known(Pressure.RECLAIM), "kernel": Known(Progress.MOVING)}
