"""The judge over time: the plain rule, what pressure and progress excuse, loads, readiness, restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec
import pytest

from guard.model import Known, Operation, OperationKind, Reading, Unknown, Why
from sidecar.health.judge import JudgeMemory, judge
from sidecar.health.memory import Crash
from sidecar.health.values import NO_PROBE, HealthEvidence, Judgement, Pressure, Progress, Rules, State
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
    alive: Reading[bool] = ALIVE
    session: str = "s1"
    removed: bool = False
    declared: bool = True
    engines: tuple[str, ...] = ()
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
        operation=is_now.operation,
        operation_progress=is_now.operation_progress,
        session=is_now.session,
        removed=is_now.removed,
        loop_moved=is_now.loop == Known(Progress.MOVING),
        loop_declared=is_now.declared,
        engines=is_now.engines,
        stopped=is_now.stopped,
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


def test_a_model_that_answers_is_ok() -> None:
    """A healthy model is alive, ready and started, with the reason said."""
    last = at_the_end(lambda _: Now(), 60.0)
    assert (last.state, last.live, last.ready, last.started) == (State.OK, True, True, True)
    assert last.reasons[0] == "it answers in time"


@pytest.mark.parametrize("hang", [20.0, 25.0, 63.0])
@pytest.mark.parametrize(
    "rules",
    [RULES, Rules(period_seconds=1.0, timeout_seconds=1.0), Rules(period_seconds=2.0, failure_threshold=5)],
)
def test_an_idle_hang_fails_when_the_plain_probe_fails(hang: float, rules: Rules) -> None:
    """Without pressure liveness fails with the plain probe, within a tick and the probe's own grid."""
    failed = failed_at(hang_at(hang), 200.0, rules)
    assert failed is not None
    assert abs(failed - kubelet_fails_at(hang, rules)) <= rules.period_seconds


def test_a_slow_answer_counts_as_none() -> None:
    """Without pressure answers after the timeout fail the model, as the kubelet would."""
    failed = failed_at(lambda now: Now(latency=0.02 if now < 20 else 2.0), 100.0)
    assert failed is not None
    assert failed <= kubelet_fails_at(20.0) + 2 * RULES.period_seconds


def test_an_error_status_fails_it() -> None:
    """A model that answers 500 at once is failed after the threshold."""
    world: World = lambda now: Now(outcome=ProbeOutcome.OK if now < 20 else ProbeOutcome.FAILED)  # noqa: E731
    assert failed_at(world, 100.0) == pytest.approx(40.5, abs=1.0)


def test_one_failure_is_slow_not_dead() -> None:
    """Fewer failures than the threshold cost readiness alone."""
    last = at_the_end(hang_at(20.0), 25.0)
    assert (last.state, last.live, last.ready) == (State.SLOW, True, False)


def test_unknown_pressure_is_the_plain_rule() -> None:
    """Where pressure is not known nothing is excused, and the missing input is said."""
    blind = hang_at(20.0, pressure=Unknown(Why.UNSUPPORTED, "memory.pressure"), kernel=Known(Progress.MOVING))
    failed = failed_at(blind, 200.0)
    assert failed is not None
    assert failed == pytest.approx(kubelet_fails_at(20.0), abs=RULES.period_seconds)
    assert any("memory pressure" in gap for gap in at_the_end(blind, 60.0).degraded)


def test_slow_answers_under_pressure_live() -> None:
    """Answers that are late under reclaim keep the model alive for as long as they come: this is the promise."""
    rules = Rules(period_seconds=5.0)
    world: World = lambda now: Now(latency=0.02 if now < 20 else 3.0, **PRESSED)  # type: ignore[arg-type]  # noqa: E731
    judged = list(play(world, 1500.0, rules))
    assert all(one.live for one in judged)
    assert judged[-1].state is State.RECLAIMING
    assert not judged[-1].ready


def test_kernel_progress_alone_is_excused_for_the_credit() -> None:
    """Without any sign of the serving loop, kernel progress under pressure keeps it alive for the credit only."""
    failed = failed_at(hang_at(20.0, **PRESSED), 600.0)
    assert failed is not None
    assert failed == pytest.approx(kubelet_fails_at(20.0) + RULES.credit_seconds, abs=RULES.period_seconds)


def test_a_moving_loop_is_excused_up_to_the_cap() -> None:
    """Loop tokens refill the credit; five minutes without one answer are a livelock all the same."""
    world = hang_at(20.0, loop=Known(Progress.MOVING), **PRESSED)
    failed = failed_at(world, 600.0)
    assert failed is not None
    assert failed == pytest.approx(kubelet_fails_at(20.0) + RULES.cap_seconds, abs=RULES.period_seconds)
    assert at_the_end(world, 500.0).state is State.LIVELOCK


def test_a_loop_that_stands_still_under_pressure_is_hung_at_once() -> None:
    """Other threads that thrash excuse nothing when the serving loop itself makes no progress."""
    world = hang_at(20.0, loop=Known(Progress.STILL), **PRESSED)
    failed = failed_at(world, 600.0)
    assert failed is not None
    assert failed == pytest.approx(kubelet_fails_at(20.0), abs=RULES.period_seconds)
    assert at_the_end(world, 60.0).state is State.HUNG


def test_pressure_without_progress_is_no_excuse() -> None:
    """A process that does nothing under pressure is hung."""
    world = hang_at(20.0, pressure=Known(Pressure.THRASH), kernel=Known(Progress.STILL))
    failed = failed_at(world, 600.0)
    assert failed is not None
    assert failed == pytest.approx(kubelet_fails_at(20.0), abs=RULES.period_seconds)


def test_pressure_that_comes_and_goes_buys_no_more_time() -> None:
    """A hung model whose pressure flickers fails for good when credit and cap are spent."""

    def world(now: float) -> Now:
        on = int(now / 7) % 2 == 0
        pressure = Known(Pressure.RECLAIM if on else Pressure.NONE)
        return Now(latency=0.02 if now < 20 else None, pressure=pressure, kernel=Known(Progress.MOVING))

    late = [one for one in play(world, 400.0) if one.at.monotonic_s > 41 + RULES.credit_seconds + 10]
    assert late
    assert not any(one.live for one in late)


def test_after_pressure_the_next_probe_decides() -> None:
    """When pressure ends while the model is behind, it has one more probe to answer and is not failed before."""

    def world(now: float) -> Now:
        squeezed = 20 <= now < 65
        return Now(
            latency=None if squeezed else 0.02,
            pressure=Known(Pressure.THRASH if squeezed else Pressure.NONE),
            kernel=Known(Progress.MOVING if squeezed else Progress.STILL),
        )

    judged = list(play(world, 120.0))
    assert all(one.live for one in judged)
    assert judged[-1].state is State.OK


def test_an_answer_ends_every_doubt() -> None:
    """A model past the cap that answers again is alive again."""
    world: World = lambda now: Now(  # noqa: E731
        latency=None if 20 <= now < 500 else 0.02,
        pressure=Known(Pressure.THRASH),
        kernel=Known(Progress.MOVING),
    )
    judged = {one.at.monotonic_s: one for one in play(world, 560.0)}
    assert not judged[490.0].live
    assert judged[560.0].live


def test_readiness_goes_first() -> None:
    """Under thrash load is shed while the model still answers; it comes back after two answers in time."""
    world: World = lambda now: Now(pressure=Known(Pressure.THRASH if 30 <= now < 60 else Pressure.NONE))  # noqa: E731
    judged = {one.at.monotonic_s: one for one in play(world, 100.0)}
    assert (judged[45.0].live, judged[45.0].ready, judged[45.0].state) == (True, False, State.THRASHING)
    assert judged[100.0].ready


def test_readiness_comes_back_after_two_answers() -> None:
    """After a miss one answer in time is not enough."""
    world: World = lambda now: Now(latency=None if 29 <= now < 31 else 0.02)  # noqa: E731
    judged = {one.at.monotonic_s: one for one in play(world, 100.0)}
    assert not judged[35.0].ready
    back = next(at for at, one in judged.items() if at > 35 and one.ready)
    assert 50.0 <= back <= 52.0


def test_a_model_that_never_answered_has_its_start_up_time() -> None:
    """Before the first answer the model lives for the start-up time, and is not started."""
    world: World = lambda _: Now(outcome=ProbeOutcome.REFUSED, latency=0.0)  # noqa: E731
    assert failed_at(world, 700.0) == pytest.approx(RULES.startup_seconds, abs=TICK)
    early = at_the_end(world, 100.0)
    assert (early.state, early.live, early.started) == (State.STARTING, True, False)


def test_a_load_that_holds_the_gil_lives() -> None:
    """Minutes without an answer or a word from the load are fine while memory moves; the model is not started."""
    world: World = lambda now: Now(  # noqa: E731
        latency=None if now < 900 else 0.02,
        kernel=Known(Progress.MOVING),
        operation=load() if now < 590 else None,
        operation_progress=Known(Progress.STILL),
    )
    judged = {one.at.monotonic_s: one for one in play(world, 960.0)}
    assert all(one.live for one in judged.values())
    assert (judged[500.0].state, judged[500.0].started) == (State.LOADING, False)
    assert judged[960.0].started


def test_a_load_long_after_the_start_is_excused_and_then_counted_afresh() -> None:
    """A model swap that holds the GIL for two minutes fails nothing, and after it the full threshold applies."""
    world: World = lambda now: Now(  # noqa: E731
        latency=None if 60 <= now < 185 else 0.02,
        kernel=Known(Progress.MOVING),
        operation=load(started=60.0) if 60 <= now < 180 else None,
        operation_progress=Known(Progress.STILL),
    )
    assert all(one.live for one in play(world, 300.0))


def test_a_load_that_stands_still_excuses_nothing() -> None:
    """A deadlocked load, nothing moving, is the plain rule again."""
    world: World = lambda now: Now(  # noqa: E731
        latency=None if now >= 20 else 0.02,
        operation=load(started=20.0) if now >= 20 else None,
        operation_progress=Known(Progress.MOVING if now < 30 else Progress.STILL),
    )
    failed = failed_at(world, 200.0)
    assert failed is not None
    assert failed <= 30 + 4 * RULES.period_seconds


def test_a_load_without_a_word_is_bounded() -> None:
    """Other threads that keep moving do not excuse a stuck load for longer than the start-up time."""
    world: World = lambda now: Now(  # noqa: E731
        latency=None if now >= 20 else 0.02,
        kernel=Known(Progress.MOVING),
        operation=load(started=20.0) if now >= 20 else None,
        operation_progress=Known(Progress.STILL),
    )
    failed = failed_at(world, 900.0)
    assert failed is not None
    assert failed == pytest.approx(20 + RULES.startup_seconds + 30, abs=15)


def busy(at_most: float | None) -> Operation:
    """Make declared work in flight since 30."""
    return Operation(
        kind=OperationKind.BUSY,
        label="compile",
        started_monotonic_s=30.0,
        updated_monotonic_s=30.0,
        at_most_seconds=at_most,
    )


def test_declared_work_is_excused_within_its_bound() -> None:
    """A compile of at most 100 s fails nothing; past its bound the plain rule counts from there."""
    world: World = lambda now: Now(  # noqa: E731
        latency=None if now >= 30 else 0.02, operation=busy(100.0) if now >= 30 else None
    )
    failed = failed_at(world, 300.0)
    assert failed is not None
    assert 130 + 20 <= failed <= 130 + 40


def test_declared_work_without_a_bound_excuses_nothing() -> None:
    """Without a bound the plain rule holds."""
    world: World = lambda now: Now(  # noqa: E731
        latency=None if now >= 30 else 0.02, operation=busy(None) if now >= 30 else None
    )
    failed = failed_at(world, 300.0)
    assert failed is not None
    assert failed == pytest.approx(kubelet_fails_at(30.0), abs=RULES.period_seconds)


def test_a_dead_process_is_dead_at_once() -> None:
    """The end of the main process is told at the same tick, whatever the last probe said."""
    world: World = lambda now: Now(alive=Known(now < 33))  # noqa: E731
    last = at_the_end(world, 33.0)
    assert (last.state, last.ready, last.started) == (State.DEAD, False, False)


def test_the_next_server_is_not_failed_for_the_end_of_the_last() -> None:
    """In a container that stands a dead model fails when a plain prober would, refused at each period from then on."""
    world: World = lambda now: Now(alive=Known(now < 33))  # noqa: E731
    failed = failed_at(world, 200.0)
    assert failed is not None
    assert failed == pytest.approx(33.0 + RULES.failure_threshold * RULES.period_seconds, abs=1.0)


def test_a_container_that_is_gone_leaves_the_next_one_its_start_up_time() -> None:
    """A crash loop's pause, or a server that hands over late, is longer than three probes of the dead one."""
    world: World = lambda now: Now(alive=Known(now < 33), removed=now >= 34)  # noqa: E731
    failed = failed_at(world, 800.0)
    assert failed is not None
    assert failed == pytest.approx(33.0 + RULES.startup_seconds, abs=1.0)


def test_a_restarted_model_is_starting_and_not_dead() -> None:
    """After the end nothing has started: a start-up probe of the next container waits for that one's own answer."""
    world: World = lambda now: Now(  # noqa: E731
        alive=Known(not 33 <= now < 40), session="s1" if now < 40 else "s2", latency=0.02 if now < 33 else None
    )
    judged = {one.at.monotonic_s: one for one in play(world, 45.0)}
    assert (judged[39.5].state, judged[39.5].live, judged[39.5].started) == (State.DEAD, True, False)
    assert judged[42.0].state is not State.DEAD


def test_without_a_probe_loop_tokens_stand_in() -> None:
    """Nobody probes, the loop reports: its silence fails the model as missing answers would."""
    world: World = lambda now: Now(  # noqa: E731
        probed=False, loop=Known(Progress.MOVING if now < 60 else Progress.STILL)
    )
    failed = failed_at(world, 200.0)
    assert failed is not None
    assert failed == pytest.approx(60 + 21, abs=1.0)
    assert at_the_end(world, 50.0).state is State.OK


def test_without_a_probe_and_tokens_it_says_so() -> None:
    """With nothing to judge by the model is alive, and the page says what is not known."""
    last = at_the_end(lambda _: Now(probed=False), 900.0)
    assert (last.state, last.live, last.ready) == (State.UNKNOWN, True, True)
    assert any("answers of the model" in gap for gap in last.degraded)


def test_a_prober_that_never_reports_does_not_fail_the_model() -> None:
    """Our own failure to probe is not the model's: past two periods without any result nothing is concluded."""
    memory = JudgeMemory()
    for second in range(0, 2000, 10):
        memory, judgement = judge(memory, evidence(float(second), Now()), RULES)
        assert judgement.live
    assert judgement.state is State.UNKNOWN


def test_another_life_starts_afresh() -> None:
    """After a restart nothing is held against the new process."""
    world: World = lambda now: Now(  # noqa: E731
        latency=None if now >= 20 else 0.02, session="s1" if now < 60 else "s2"
    )
    judged = {one.at.monotonic_s: one for one in play(world, 80.0)}
    assert not judged[59.5].live
    assert judged[61.0].live
    assert judged[61.0].state is State.STARTING


def test_a_wall_clock_jump_changes_nothing() -> None:
    """The same evidence with another wall clock gives the same answers."""
    memory, jumped = JudgeMemory(), JudgeMemory()
    for second in range(100):
        now = evidence(float(second), Now(latency=None), None, 0.0 if second >= 5 else None)
        far = replace(now, at=make.at(float(second), wall=second * -86400.0))
        memory, one = judge(memory, now, RULES)
        jumped, other = judge(jumped, far, RULES)
        assert (one.state, one.live, one.reasons) == (other.state, other.live, other.reasons)


def test_a_restarted_sidecar_goes_on_where_it_was() -> None:
    """The memory goes through JSON unchanged, so a restart neither forgives nor forgets."""
    memory = JudgeMemory()
    for second in range(60):
        started = 20.0 if second >= 20 else None
        last = ProbeResult(started=make.at(10.0), latency_seconds=0.02, outcome=ProbeOutcome.OK)
        memory, before = judge(memory, evidence(float(second), Now(), last, started), RULES)
    memory = replace(memory, crashes=(Crash("s1", 59.0, "crash_signal: SIGSEGV"),))
    restored = msgspec.json.decode(msgspec.json.encode(memory), type=JudgeMemory)
    assert restored == memory
    _, after = judge(restored, evidence(60.0, Now(), last, 20.0), RULES)
    assert (after.state, after.live) == (before.state, before.live)


def test_the_credit_that_is_left_is_said() -> None:
    """While patience is spent the page says how much is left."""
    world = hang_at(20.0, **PRESSED)
    spent = [one.credit_left_seconds for one in play(world, 90.0) if one.at.monotonic_s > 45]
    assert spent == sorted(spent, reverse=True)
    assert spent[-1] == pytest.approx(41 + 60 - 90, abs=RULES.period_seconds)


def test_a_probe_that_waits_for_long_is_counted_as_a_plain_prober_would() -> None:
    """One probe in flight for several periods stands for the failures of all of them."""
    memory = JudgeMemory()
    answer = ProbeResult(started=make.at(10.0), latency_seconds=0.02, outcome=ProbeOutcome.OK)
    lives = []
    for second in range(10, 50):
        started = 20.0 if second >= 20 else None
        memory, judged = judge(memory, evidence(float(second), Now(), answer, started), RULES)
        lives.append(judged.live)
    assert lives.index(False) + 10 == pytest.approx(kubelet_fails_at(20.0), abs=1.0)


def test_the_load_in_flight_is_said() -> None:
    """The page names the load with file, bytes, time and bound."""
    operation = replace(load(at_most=300.0), bytes_done=1 << 29)
    world: World = lambda _: Now(  # noqa: E731
        latency=None, operation=operation, operation_progress=Known(Progress.MOVING)
    )
    said = " ".join(at_the_end(world, 20.0).reasons)
    assert "load in flight: torch.load of model.safetensors 512.0 MiB of 1.0 GiB (50.0 %)" in said
    assert "for 20.0 s of at most 300 s" in said


def test_an_undeclared_loop_gets_longer_to_show_itself() -> None:
    """A loop that computes in a callback may be silent for 15 s under pressure; a declared one may not."""

    def world(*, declared: bool) -> World:
        return lambda now: Now(
            latency=0.02 if now < 30 else None,
            pressure=Known(Pressure.THRASH),
            kernel=Known(Progress.MOVING),
            loop=Known(Progress.MOVING if now < 45 else Progress.STILL),
            declared=declared,
        )

    for declared, expected in ((True, kubelet_fails_at(30.0)), (False, 45.0 + 20.0)):
        failed = failed_at(world(declared=declared), 200.0)
        assert failed is not None
        assert failed == pytest.approx(expected, abs=RULES.period_seconds)


def test_an_undeclared_loop_stands_in_for_no_probe() -> None:
    """Nobody probes, and an event loop blocks: that may be a load in its start-up, so nothing is concluded."""
    world: World = lambda now: Now(  # noqa: E731
        probed=False, declared=False, loop=Known(Progress.MOVING if now < 60 else Progress.STILL)
    )
    assert failed_at(world, 300.0) is None


def test_a_crashed_engine_fails_a_front_end_that_answers() -> None:
    """200 with a dead engine is dead, once the plain rule's patience for a replacement is over; a new one clears it."""
    crashed = JudgeMemory(session="s1", crashes=(Crash("s1", 100.0, "crash_signal: SIGSEGV"),))
    memory, judgement = judge(crashed, evidence(110.0, Now()), RULES)
    assert judgement.live
    for moment, engines, live in ((131.0, (), False), (132.0, ("s1",), True), (140.0, (), True)):
        memory, judgement = judge(memory, evidence(moment, Now(engines=engines)), RULES)
        assert judgement.live is live
        assert (judgement.state is State.DEAD) is not live


def test_one_of_a_pool_of_engines_is_no_end() -> None:
    """While the front end has a living engine the crash of another fails nothing."""
    crashed = JudgeMemory(session="s1", crashes=(Crash("s1", 100.0, "crash_signal: SIGSEGV"),))
    _, judgement = judge(crashed, evidence(200.0, Now(engines=("s1",))), RULES)
    assert judgement.live


def test_a_stopped_process_is_hung_whatever_moves() -> None:
    """SIGSTOP under pressure: no counter of another process excuses it."""
    failed = failed_at(
        lambda now: Now(
            latency=0.02 if now < 30 else None,
            pressure=Known(Pressure.THRASH),
            kernel=Known(Progress.MOVING),
            stopped=now >= 30,
        ),
        200.0,
    )
    assert failed is not None
    assert failed == pytest.approx(kubelet_fails_at(30.0), abs=RULES.period_seconds)


def test_a_load_says_how_far_it_is_and_when_it_will_be_done() -> None:
    """The reasons give bytes, share and the time to go at the pace since the load was first seen."""
    world: World = lambda now: Now(  # noqa: E731
        latency=None, operation=make.load("torch.load", 1000 << 20, done=int(now * 10) << 20)
    )
    last = at_the_end(world, 25.0)
    assert any("250.0 MiB of 1000.0 MiB (25.0 %) for 25.0 s, about 75.0 s to go" in one for one in last.reasons), (
        last.reasons
    )


@pytest.mark.parametrize("done", [None, 0])
def test_a_load_without_a_pace_has_no_time_to_go(done: int | None) -> None:
    """What has not moved, or is not counted, gives no estimate."""
    last = at_the_end(lambda _: Now(latency=None, operation=make.load("torch.load", 1 << 30, done=done)), 25.0)
    assert not any("to go" in one for one in last.reasons)


def test_answers_later_than_the_period_refill_patience() -> None:
    """Under pressure a server that still answers, however late, is not hung; it stays failed for the plain rule."""
    memory, last = JudgeMemory(answered=True, answers=1), None
    for second in range(10, 291, 10):
        last = ProbeResult(started=make.at(second - 10.0), latency_seconds=10.0, outcome=ProbeOutcome.TIMEOUT)
        now = Now(pressure=Known(Pressure.THRASH), kernel=Known(Progress.MOVING))
        heard = make.at(second - second % 50.0)
        memory, judgement = judge(memory, replace(evidence(float(second), now, last), heard_late=heard), RULES)
        assert judgement.live, second
    assert judgement.state is State.THRASHING
    for second in range(300, 371, 10):
        memory, judgement = judge(memory, replace(evidence(float(second), now, last), heard_late=heard), RULES)
    assert not judgement.live


def test_pressure_that_cannot_be_seen_any_more_has_just_ended() -> None:
    """Where faults alone tell pressure, a second without enough of them is no proof of calm, and no hang either."""
    world: World = lambda now: Now(  # noqa: E731
        latency=0.02 if now < 30 else None,
        pressure=Known(Pressure.RECLAIM) if now % 4 < 2 else Unknown(Why.MISSING, "memory.pressure"),
        kernel=Known(Progress.MOVING),
    )
    failed = failed_at(world, 200.0)
    assert failed is not None
    assert failed == pytest.approx(kubelet_fails_at(30.0) + RULES.credit_seconds, abs=RULES.period_seconds)


def test_a_container_that_is_gone_is_not_held_against_a_next_one_that_nobody_probes() -> None:
    """Without a probe and a hand-over nothing is known of what runs there now: that fails nobody."""
    assert failed_at(lambda now: Now(alive=Known(now < 33), removed=now >= 34, probed=False), 2000.0) is None
