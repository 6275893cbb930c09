"""The judge against random histories, beside an oracle that replays a plain prober step by step."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from guard.model import Known, Operation, OperationKind, Reading, Unknown, Why
from sidecar.health.judge import JudgeMemory, judge
from sidecar.health.values import HealthEvidence, InFlight, Judgement, Pressure, Progress, Rules
from sidecar.sample import ProbeOutcome, ProbeResult
from tests.sidecar import making as make

RULES = Rules(period_seconds=5.0, startup_seconds=30.0, credit_seconds=20.0, cap_seconds=60.0)
TICK = 0.5
WAITING = Unknown(Why.NOT_SAMPLED, "probe")

pressures: st.SearchStrategy[Reading[Pressure]] = st.sampled_from(
    [*(Known(one) for one in Pressure), Unknown(Why.UNSUPPORTED, "memory.pressure")]
)
progress: st.SearchStrategy[Reading[Progress]] = st.sampled_from(
    [*(Known(one) for one in Progress), Unknown(Why.MISSING, "beat named loop")]
)
latencies = st.sampled_from([None, 0.01, 0.5, 1.5, 3.0])


def counted(waited: float) -> int:
    """Count, second by second of a plain prober, how often it gave up within this time."""
    failures, asked = 0, 0.0
    while asked + RULES.timeout_seconds < waited:
        failures, asked = failures + 1, asked + RULES.period_seconds
    return failures


@dataclass
class Oracle:
    """What a plain prober has seen: failures in a row, and when anything was answered last."""

    failures: int = 0
    answered_at: float | None = None
    in_time_once: bool = False
    failed_since: float | None = None

    def finished(self, latency: float, *, answered: bool, now: float) -> None:
        """Take one finished probe."""
        count = counted(latency)
        if answered:
            self.answered_at, self.failed_since = now, None
        if answered and count == 0:
            self.failures, self.in_time_once = 0, True
        else:
            self.failures += max(1, count)

    def has_failed(self, waited: float, now: float) -> bool:
        """Say whether it has failed the model by now."""
        failed = self.in_time_once and self.failures + counted(waited) >= RULES.failure_threshold
        if failed and self.failed_since is None:
            self.failed_since = now
        return failed


@dataclass
class World:
    """The model and its surroundings, as set by the rules below."""

    latency: float | None = 0.01
    pressure: Reading[Pressure] = field(default_factory=lambda: Known(Pressure.NONE))
    kernel: Reading[Progress] = field(default_factory=lambda: Known(Progress.STILL))
    loop: Reading[Progress] = field(default_factory=lambda: Unknown(Why.MISSING, "beat named loop"))
    operation: Operation | None = None


class Judging(RuleBasedStateMachine):
    """Changes the world at random and checks every answer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.world = World()
        self.memory = JudgeMemory()
        self.last: Reading[ProbeResult] = WAITING
        self.started: float | None = None
        self.asked_latency: float | None = None
        self.due = 0.0
        self.oracle = Oracle()
        self.ever_pressed_or_busy = False
        self.busy_at: float | None = None
        self.judged: Judgement | None = None

    @rule(latency=latencies)
    def answer_after(self, latency: float | None) -> None:
        """Let the model answer so late from now on, or never."""
        self.world.latency = latency

    @rule(pressure=pressures, kernel=progress)
    def press(self, pressure: Reading[Pressure], kernel: Reading[Progress]) -> None:
        """Press on the model."""
        self.world.pressure, self.world.kernel = pressure, kernel

    @rule(loop=progress)
    def turn_loop(self, loop: Reading[Progress]) -> None:
        """Let the serving loop turn, stand, or be unknown."""
        self.world.loop = loop

    @rule(at_most=st.sampled_from([None, 8.0, 20.0]))
    def be_busy(self, at_most: float | None) -> None:
        """Declare work."""
        self.world.operation = Operation(
            kind=OperationKind.BUSY,
            label="compile",
            started_monotonic_s=self.now,
            updated_monotonic_s=self.now,
            at_most_seconds=at_most,
        )

    @rule()
    def be_idle(self) -> None:
        """End declared work."""
        self.world.operation = None

    @rule(pressure=st.sampled_from([Pressure.RECLAIM, Pressure.THRASH]))
    def squeeze(self, pressure: Pressure) -> None:
        """Let it live under pressure and move, but never answer."""
        self.world = World(None, Known(pressure), Known(Progress.MOVING), Known(Progress.MOVING), None)

    @rule(ticks=st.integers(1, 200))
    def pass_time(self, ticks: int) -> None:
        """Tick on, checking every answer."""
        for _ in range(ticks):
            self.now += TICK
            self._probe()
            self._judge()

    def _probe(self) -> None:
        if self.started is not None:
            waited = self.now - self.started
            answered = self.asked_latency is not None and waited >= self.asked_latency
            if answered or waited >= RULES.period_seconds:
                latency = self.asked_latency if answered and self.asked_latency is not None else waited
                outcome = ProbeOutcome.OK if answered else ProbeOutcome.TIMEOUT
                self.last = Known(ProbeResult(started=make.at(self.started), latency_seconds=latency, outcome=outcome))
                self.oracle.finished(latency, answered=answered, now=self.now)
                self.started = None
        if self.started is None and self.now >= self.due:
            self.started, self.due = self.now, self.now + RULES.period_seconds
            self.asked_latency = self.world.latency

    def _judge(self) -> None:
        world = self.world
        evidence = HealthEvidence(
            at=make.at(self.now),
            alive=Known(value=True),
            probe=self.last,
            probe_in_flight_since=None if self.started is None else make.at(self.started),
            pressure=world.pressure,
            pressure_because=(),
            kernel_progress=world.kernel,
            loop_progress=world.loop,
            loop_moved=world.loop == Known(Progress.MOVING),
            in_flight=tuple(
                InFlight(f"{one.label} {one.started_monotonic_s}", one, Unknown(Why.NOT_SAMPLED, "operation in flight"))
                for one in (world.operation,)
                if one is not None
            ),
            session="s1",
        )
        before = self.judged
        self.memory, self.judged = judge(self.memory, evidence, RULES)
        if world.operation is not None and world.operation.at_most_seconds is not None:
            self.busy_at = self.now
        pressed = isinstance(world.pressure, Known) and world.pressure.value is not Pressure.NONE
        self.ever_pressed_or_busy = self.ever_pressed_or_busy or pressed or self.busy_at is not None
        self._check(before, self.judged)

    def _check(self, before: Judgement | None, judged: Judgement) -> None:
        waited = 0.0 if self.started is None else self.now - self.started
        failed = self.oracle.has_failed(waited, self.now)
        if not self.ever_pressed_or_busy and self.oracle.in_time_once:
            assert judged.live is not failed, "without pressure it is exactly the plain probe"
        if self.oracle.in_time_once and not failed:
            assert judged.live, "a model that the plain probe does not fail is never failed"
        self._check_cap(judged)
        if before is not None and before.state is not judged.state:
            assert before.reasons[0] != judged.reasons[0], "a change of state has a cause"
        assert judged.live or not judged.ready
        assert 0.0 <= judged.credit_left_seconds <= RULES.credit_seconds

    def _check_cap(self, judged: Judgement) -> None:
        """Declared work starts the count afresh: no leniency can be older than its end or the plain failure."""
        since = self.oracle.failed_since
        if since is None:
            return
        again = 0.0
        if self.busy_at is not None and self.busy_at >= since:
            since, again = self.busy_at, RULES.failure_threshold * RULES.period_seconds + RULES.timeout_seconds
        if self.now - since > RULES.cap_seconds + again + TICK:
            assert not judged.live, "nothing is lenient past the cap"


TestJudging = Judging.TestCase
TestJudging.settings = settings(max_examples=100, stateful_step_count=30)
