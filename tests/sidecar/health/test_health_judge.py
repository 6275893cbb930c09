"""The judge: the plain rule, pressure and progress, readiness, loads, declared work, ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from guard.model import Known, Operation, OperationKind, Unknown, Why
from sidecar.health.values import Pressure, Progress, Rules, State
from sidecar.sample import ProbeOutcome
from tests.sidecar.health.playing import (
    PRESSED,
    RULES,
    TICK,
    Now,
    World,
    at_the_end,
    failed_at,
    hang_at,
    kubelet_fails_at,
    load,
    play,
)


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


def test_work_that_comes_and_goes_does_not_make_another_bound_begin_anew() -> None:
    """A compile past its bound is failed, whatever short work another thread declares meanwhile."""

    def world(now: float) -> Now:
        if now < 30:
            return Now()
        short = replace(busy(5.0), label="short", started_monotonic_s=now - now % 20)
        return Now(latency=None, operation=busy(100.0), others=(short,) if now < 135 and now % 20 < 2 else ())

    failed = failed_at(world, 300.0)
    assert failed is not None
    assert failed <= 135 + 40


def test_work_within_work_takes_nothing_from_the_bound_of_the_outer_one() -> None:
    """Within a declared compile, work without a bound and a load that stands still fail nothing."""
    inner = replace(busy(None), label="inner", started_monotonic_s=40.0, updated_monotonic_s=40.0)
    world: World = lambda now: Now(  # noqa: E731
        latency=None if 30 <= now < 125 else 0.02,
        operation=busy(100.0) if 30 <= now < 125 else None,
        others=(inner, load(started=41.0)) if 41 <= now < 120 else (),
    )
    assert all(one.live for one in play(world, 200.0))


@pytest.mark.parametrize("answered", [True, False])
def test_work_again_and_again_hides_no_hang_for_ever(*, answered: bool) -> None:
    """A thread that loads something every few seconds beside a hung loop: what lies between adds up."""

    def world(now: float) -> Now:
        loads = (load(started=now - now % 20),) if now >= 30 and now % 20 < 5 else ()
        return Now(latency=0.02 if answered and now < 30 else None, others=loads, kernel=Known(Progress.MOVING))

    rules = replace(RULES, startup_seconds=400.0)
    most = rules.cap_seconds if answered else rules.startup_seconds
    failed = failed_at(world, 2000.0, rules)
    assert failed is not None
    assert failed == pytest.approx(30 + most * 20 / 15, abs=45)


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
