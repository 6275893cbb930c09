"""The history: windows, rates, lives and clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.model import Known, Unknown, Why
from sidecar.history import KEEP_SECONDS, History, Rate, Signal, Work
from sidecar.sample import LevelId, Sample
from tests.sidecar import making as make

OWN = LevelId(1, 10)


def history(*samples: Sample) -> History:
    """Append the samples one after the other."""
    made = History.start(samples[0])
    for one in samples[1:]:
        made = made.append(one)
    return made


def with_refaults(seconds: float, refaults: int, *, inode: int | None = None) -> Sample:
    """Make a sample of one level that has counted so many refaults."""
    return make.sample(seconds, make.level(make.V2(refaults=refaults), inode=inode))


def test_a_rate_needs_two_samples() -> None:
    """One sample gives no rate, and says why."""
    found = history(with_refaults(1.0, 7)).level_rate(OWN, Signal.REFAULTS, 5.0)
    assert isinstance(found, Unknown)
    assert found.why is Why.NOT_SAMPLED


def test_a_rate_is_taken_over_the_window() -> None:
    """The base of a rate is the newest point that is as old as the window."""
    made = history(*(with_refaults(t, 10 * t) for t in range(9)))
    assert Known(Rate(50, 5.0)) == made.level_rate(OWN, Signal.REFAULTS, 5.0)


def test_a_rate_says_how_long_it_was_really_watched() -> None:
    """With less history than the window the rate is over what there is."""
    found = history(with_refaults(0, 0), with_refaults(2, 10)).level_rate(OWN, Signal.REFAULTS, 5.0)
    assert isinstance(found, Known)
    assert found.value.seconds == pytest.approx(2.0)
    assert found.value.per_second == pytest.approx(5.0)


def test_a_reset_counter_counts_from_zero() -> None:
    """A counter that went back counts only what came after the reset, never less than nothing."""
    made = history(with_refaults(0, 1000), with_refaults(1, 40))
    assert Known(Rate(40, 1.0)) == made.level_rate(OWN, Signal.REFAULTS, 5.0)


def test_another_life_of_a_level_is_another_series() -> None:
    """A cgroup made anew at the same path has another inode and no rate yet."""
    made = history(with_refaults(0, 5), with_refaults(1, 500, inode=77))
    assert isinstance(made.level_rate(LevelId(1, 77), Signal.REFAULTS, 5.0), Unknown)


def test_a_monotonic_clock_that_went_back_starts_afresh() -> None:
    """After a jump back (another boot) nothing of the time before is left."""
    made = history(with_refaults(100, 5), with_refaults(101, 6), with_refaults(3, 7))
    assert len(made.points) == 1
    assert made.previous is None


def test_a_wall_clock_jump_changes_nothing() -> None:
    """Windows and rates are the same when the wall clock jumps by a day."""
    jumped = with_refaults(1, 10)
    far = Sample(**{name: getattr(jumped, name) for name in jumped.__slots__} | {"at": make.at(1, wall=5.0)})
    made = history(with_refaults(0, 0), far)
    assert Known(Rate(10, 1.0)) == made.level_rate(OWN, Signal.REFAULTS, 5.0)


def test_old_points_fall_off() -> None:
    """What is kept covers the longest window and one point more, however long the model lives."""
    made = history(*(with_refaults(t / 10, t) for t in range(1000)))
    assert made.points[0].at.monotonic_s == pytest.approx(99.9 - KEEP_SECONDS, abs=0.11)
    assert made.covers(10.0)


def test_after_a_gap_there_is_still_a_rate() -> None:
    """A sidecar that was stalled for a minute still knows the rate over the gap."""
    made = history(with_refaults(0, 0), with_refaults(60, 600))
    assert Known(Rate(600, 60.0)) == made.level_rate(OWN, Signal.REFAULTS, 5.0)


def test_a_dead_process_is_not_counted() -> None:
    """Only living processes have points, so their last readings are not mistaken for standstill."""
    made = history(make.sample(0.0, work=make.Work(alive=False)))
    assert made.points[-1].processes == ()


def test_work_of_a_process_has_a_rate() -> None:
    """CPU time of one life of a process has a rate."""
    made = history(make.sample(0.0, work=make.Work(cpu_ticks=10)), make.sample(2.0, work=make.Work(cpu_ticks=60)))
    assert Known(Rate(50, 2.0)) == made.work_rate("s1", Work.CPU_TICKS, 5.0)


def test_an_operation_keeps_what_its_level_held_when_it_began() -> None:
    """Growth since the start of a load is known also after the start has fallen out of the window."""
    work = make.Work(operations=(make.load("torch.load", 500 * make.MIB),))
    made = history(*(make.sample(t, make.level(make.V2(anon=(10 + t) * make.MIB)), work=work) for t in range(30)))
    assert made.points[-1].begun[0].growing_bytes[OWN] == 10 * make.MIB


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 1 << 40)), min_size=1, max_size=40))
def test_rates_are_never_negative(steps: list[tuple[float, int]]) -> None:
    """Whatever clocks and counters do, points stay in order and no rate is negative or over no time."""
    made = history(*(with_refaults(seconds, count) for seconds, count in steps))
    times = [point.at.monotonic_s for point in made.points]
    assert times == sorted(set(times))
    found = made.level_rate(OWN, Signal.REFAULTS, 5.0)
    if isinstance(found, Known):
        assert found.value.delta >= 0
        assert found.value.seconds > 0


def test_what_cannot_be_read_stays_unknown() -> None:
    """Unreadable files of node and process give unknown numbers with their reason, not zeros."""
    work = make.Work().sample()
    sample = make.sample(0.0, make.level(make.V2(limit="1048576", swap_max="max", anon=4096)))
    blind = replace(
        sample,
        node=replace(sample.node, meminfo=make.NOT_SAMPLED),
        processes=(replace(work, stat=make.NOT_SAMPLED, io=make.NOT_SAMPLED, status=make.NOT_SAMPLED),),
    )
    made = history(blind, replace(blind, at=make.at(1.0)))
    assert made.points[-1].levels[0].headroom_bytes == make.NOT_SAMPLED
    assert made.work_rate("s1", Work.CPU_TICKS, 5.0) == make.NOT_SAMPLED
    assert isinstance(made.work_rate("other", Work.CPU_TICKS, 5.0), Unknown)


def test_ticks_close_to_each_other_keep_few_points() -> None:
    """Ends that call for a hundred ticks a second leave about ten points of it; the first and the newest stay."""
    made = history(*(with_refaults(tick / 100, tick) for tick in range(201)))
    assert 20 <= len(made.points) <= 27
    assert (made.points[0].at.monotonic_s, made.points[-1].at.monotonic_s) == (0.0, 2.0)
    assert Known(Rate(200, 2.0)) == made.level_rate(OWN, Signal.REFAULTS, 5.0)
