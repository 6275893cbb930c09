"""The judge: loop tokens without a probe, lives and restarts, what it says, engines and stopped processes."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from guard.model import Known, Unknown, Why
from sidecar.health.judge import JudgeMemory, judge
from sidecar.health.memory import Crash
from sidecar.health.values import Pressure, Progress, State
from sidecar.sample import ProbeOutcome, ProbeResult
from tests.sidecar import making as make
from tests.sidecar.health.playing import (
    PRESSED,
    RULES,
    Now,
    World,
    at_the_end,
    evidence,
    failed_at,
    hang_at,
    kubelet_fails_at,
    load,
    play,
)


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


def test_a_prober_that_cannot_ask_any_more_does_not_fail_the_model() -> None:
    """It answered, and then the sidecar has no descriptor to ask with: alive, and soon nobody can tell."""
    memory, found = JudgeMemory(), Unknown(Why.FAILED, "probe", 24)
    for second in range(0, 900, 5):
        last = ProbeResult(started=make.at(second), latency_seconds=0.02, outcome=ProbeOutcome.OK)
        now = evidence(float(second), Now(), last)
        memory, judgement = judge(memory, now if second < 50 else replace(now, probe=found), RULES)
        assert judgement.live, second
    assert (judgement.state, judgement.ready) == (State.UNKNOWN, True)


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


def test_a_sidecar_that_comes_back_says_the_same_before_its_first_probe() -> None:
    """Nothing was heard by the new sidecar yet; a model that had failed is no unknown one, and passes no /livez."""
    hung = ProbeResult(started=make.at(130.0), latency_seconds=10.0, outcome=ProbeOutcome.TIMEOUT)
    before = JudgeMemory(
        session="s1", first_s=0.0, last_s=140.5, answered=True, failures=3, probe_s=120.0, failed_s=121.0
    )
    memory, then = judge(before, evidence(140.5, Now(), hung), RULES)
    _, back = judge(memory, evidence(144.0, Now()), RULES)
    assert (then.state, then.live) == (back.state, back.live) == (State.HUNG, False)


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


def test_a_server_that_holds_its_model_itself_is_not_failed_for_a_helper() -> None:
    """It loaded once, also where its black box has forgotten; a process of it that loads and fails is no engine."""
    memory, _ = judge(JudgeMemory(session="s1"), evidence(50.0, Now(loaded=("s1",))), RULES)
    memory = replace(memory, crashes=(Crash("s1", 100.0, "application_exit: exit code 1"),))
    for moment in (110.0, 200.0):
        memory, judgement = judge(memory, evidence(moment, Now()), RULES)
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
