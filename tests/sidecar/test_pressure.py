"""What level the guards are told, and when. Pure, in virtual time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from guard.link.protocol import Pressure
from sidecar.detect.values import Finding, Severity
from sidecar.pressure import HOLD_SECONDS, REPEAT_SECONDS, Told, step, worst

ORDER = ("none", "warning", "critical")


def finding(severity: Severity, text: str = "because") -> Finding:
    """Make a finding of a severity."""
    return Finding(
        detector="d",
        severity=severity,
        level=None,
        observed=1.0,
        threshold=1.0,
        unit="s",
        window_seconds=1.0,
        text=text,
    )


def told(levels: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    """Give the notices, with their times, for the level found at each tick."""
    state, notices = Told(), []
    for at_s, level in levels:
        found = [] if level == "none" else [finding(Severity(level))]
        state, notice = step(state, found, at_s)
        if notice is not None:
            notices.append((at_s, notice.level))
    return notices


def ticks(*spans: tuple[float, str]) -> list[tuple[float, str]]:
    """Tick once a second through spans of (seconds, level)."""
    levels = [level for seconds, level in spans for _ in range(int(seconds))]
    return [(float(at_s), level) for at_s, level in enumerate(levels)]


def test_worse_is_told_at_once_and_better_after_a_while() -> None:
    """From calm to critical at the first tick; back only when it has been calm for the whole while."""
    assert told(ticks((3, "none"), (2, "critical"), (30, "none"))) == [(3.0, "critical"), (5.0 + HOLD_SECONDS, "none")]


def test_flapping_is_not_told() -> None:
    """A level that comes and goes with every tick is told once, and then only repeated."""
    notices = told([(float(at_s), "critical" if at_s % 2 else "none") for at_s in range(60)])
    assert {level for _, level in notices} == {"critical"}
    assert [later - earlier for (earlier, _), (later, _) in pairwise(notices)] == [REPEAT_SECONDS] * (len(notices) - 1)


def test_it_goes_down_to_the_worst_of_the_while() -> None:
    """Critical, then mostly calm with a warning in between: warning is what it becomes."""
    notices = told(ticks((1, "critical"), (4, "none"), (1, "warning"), (6, "none"), (40, "none")))
    assert [level for _, level in notices] == ["critical", "warning", "none"]


def test_pressure_that_lasts_is_told_again() -> None:
    """Every ten seconds, so that a guard that comes late hears of it."""
    assert told(ticks((25, "warning"))) == [(0.0, "warning"), (10.0, "warning"), (20.0, "warning")]


def test_calm_is_never_told_to_who_has_heard_nothing() -> None:
    """No notice without pressure before."""
    assert told(ticks((100, "none"))) == []


def test_the_loudest_finding_gives_the_reason() -> None:
    """A notice is none of the guard's business; of the others the worst speaks."""
    found = [finding(Severity.NOTICE, "n"), finding(Severity.WARNING, "w"), finding(Severity.CRITICAL, "c")]
    assert step(Told(), found, 0.0)[1] == Pressure("critical", "c")
    assert worst([finding(Severity.NOTICE)]) is None
    assert step(Told(), [finding(Severity.NOTICE)], 0.0)[1] is None


@given(st.lists(st.tuples(st.floats(0.05, 5.0), st.sampled_from(ORDER)), max_size=60))
def test_the_guard_never_believes_less_than_what_is(pauses: list[tuple[float, str]]) -> None:
    """At every tick the level that was told is at least the level found, and it falls only after the while."""
    at_s, state = 0.0, Told()
    fell_s = float("-inf")
    for pause, level in pauses:
        at_s += pause
        before = state.level
        state, notice = step(state, [] if level == "none" else [finding(Severity(level))], at_s)
        assert ORDER.index(state.level) >= ORDER.index(level)
        assert (notice is None) or notice.level == state.level
        if ORDER.index(state.level) < ORDER.index(before):
            assert at_s - fell_s >= HOLD_SECONDS
        if ORDER.index(state.level) != ORDER.index(before):
            fell_s = at_s
