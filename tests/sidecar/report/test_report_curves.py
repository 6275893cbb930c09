"""Curves: what is not known is a gap, a rate needs two readings, and single values are of the last quiet moment."""

from __future__ import annotations

import pytest

from sidecar.report.curves import rates, values
from sidecar.report.frames import MOST, Frame, Window, first_after_end, quiet_before_end, thin
from sidecar.report.rows import Row
from tests.sidecar.report.reporting import END_S, MIB, frame, level

TICKS = [frame(at / 10) for at in range(-50, -1)]


def used(one: Row) -> float | None:
    """Give what the own level has in use."""
    return one.levels[0].current if one.levels else None


def faults(one: Row) -> float | None:
    """Give a counter of the own level."""
    return one.levels[0].stat.get("pgmajfault") if one.levels else None


def counted(at_s: float, count: int) -> Frame:
    """Make a tick with a counter."""
    return frame(at_s, level(stat={"pgmajfault": count}))


def test_an_unknown_value_is_a_gap_and_not_zero() -> None:
    """A tick without the value keeps its place, with None."""
    frames = [frame(-3), frame(-2, level(current=None)), frame(-1)]
    assert values(frames, used) == ((-3, 320 * MIB), (-2, None), (-1, 320 * MIB))


def test_a_stretch_without_ticks_is_a_gap() -> None:
    """Where nobody looked for long, the line is broken in the middle."""
    assert values([frame(-20), frame(-19), frame(-8), frame(-7)], used) == (
        (-20, 320 * MIB),
        (-19, 320 * MIB),
        (-13.5, None),
        (-8, 320 * MIB),
        (-7, 320 * MIB),
    )


def test_before_and_after_the_end_are_not_joined() -> None:
    """The memory of a dead process did not shrink slowly."""
    assert [value for _, value in values([frame(-0.4), frame(0.1)], used)] == [320 * MIB, None, 320 * MIB]


def test_a_rate_is_over_about_a_second() -> None:
    """Ticks of 100 ms give the rise over the last second, not that of the last tick."""
    frames = [counted(at / 10, 100 * max(0, at + 10)) for at in range(-30, 0)]
    found = dict(rates(frames, faults))
    assert found[-2.0] == 0
    assert found[-0.1] == pytest.approx(900, rel=0.12)
    assert found[-0.5] == pytest.approx(500, rel=0.12)


def test_no_rate_without_a_second_reading_after_a_reset_and_over_a_gap() -> None:
    """The first tick, a counter that went back and a long pause give no rate."""
    frames = [counted(at, count) for at, count in ((-9, 5), (-8, 6), (-7, 2), (-6, 3), (-1, 9))]
    assert [value for _, value in rates(frames, faults)] == [None, 1, None, 1, None, None]


def test_the_quiet_moment_is_before_the_kill_was_counted() -> None:
    """While a killed process is taken apart its memory shrinks: those readings say nothing about the cause."""
    dying = frame(-0.1, level(current=MIB, events={"oom_kill": 1}))
    after = frame(0.1, level(current=0, events={"oom_kill": 1}))
    found = quiet_before_end([*TICKS, dying, after])
    assert found == TICKS[-1]
    assert first_after_end([*TICKS, dying, after]) == after


def test_without_a_kill_the_quiet_moment_is_the_last_one() -> None:
    """A counter that never moved takes nothing away, however high it is."""
    frames = [frame(at, level(events={"oom_kill": 3})) for at in (-30, -20, -2)]
    assert quiet_before_end(frames) == frames[-1]


def test_no_quiet_moment_without_readings() -> None:
    """A tick that saw no level is taken only where there is none that did."""
    blind = frame(-1, levels=[])
    assert quiet_before_end([frame(-2), blind]) == frame(-2)
    assert quiet_before_end([blind]) == blind
    assert quiet_before_end([]) is None


def test_many_ticks_are_thinned_and_peaks_stay() -> None:
    """A week of samples becomes a few hundred frames, and the highest reading is among them."""
    ticks = (frame(-at, level(current=999 * MIB if at == 5003 else at)).row for at in range(1, 20_000))
    frames = thin(ticks, END_S, Window(-20_000, 400))
    assert MOST * 0.9 <= len(frames) <= MOST * 1.1
    assert 999 * MIB in [one.row.levels[0].current for one in frames]
    assert [one.at_s for one in frames] == sorted(one.at_s for one in frames)


def test_the_same_tick_from_two_places_counts_once() -> None:
    """The last minute is in the series of the incident and among the samples."""
    assert len(thin([frame(-1).row, frame(-1).row], END_S, Window(-60, 1))) == 1
