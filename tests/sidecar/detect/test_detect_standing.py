"""Warnings that come and go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from sidecar.detect.standing import OVER_AFTER_SECONDS, Key, Standing, step
from sidecar.detect.values import Finding, Severity

_TICK: Final = 0.1


def _finding(detector: str = "reclaim") -> Finding:
    return Finding(
        detector=detector,
        severity=Severity.WARNING,
        level="/m",
        observed=1.0,
        threshold=1.0,
        unit="ratio",
        window_seconds=1.0,
        text="x",
    )


def _play(ticks: list[bool]) -> list[tuple[int, str]]:
    """Give the number of each tick with what it changed."""
    standing: Mapping[Key, Standing] = {}
    changes = []
    for at, is_found in enumerate(ticks):
        changed = step(standing, [_finding()] if is_found else [], at * _TICK)
        standing = changed.standing
        changes += [(at, "begun") for _ in changed.begun] + [(at, "over") for _ in changed.over]
    return changes


def test_one_that_flickers_is_one_warning() -> None:
    """A finding that is gone at every other tick begins once, and is over once it stays away."""
    assert _play([True, False] * 20 + [False] * 40) == [(0, "begun"), (38 + round(OVER_AFTER_SECONDS / _TICK), "over")]


def test_others_do_not_keep_it_up() -> None:
    """Each detector and level has its own warning."""
    began = step({}, [_finding("a"), _finding("b")], 0.0)
    later = step(began.standing, [_finding("a")], OVER_AFTER_SECONDS)
    assert [one.detector for one in later.over] == ["b"]
    assert [one.finding.detector for one in later.standing.values()] == ["a"]


@given(st.lists(st.booleans(), max_size=200))
def test_begun_and_over_take_turns(ticks: list[bool]) -> None:
    """Whatever comes, a warning begins with its first finding, never twice, and is never over before it was away."""
    changes = _play(ticks)
    assert [kind for _, kind in changes] == ["begun", "over"] * (len(changes) // 2) + ["begun"] * (len(changes) % 2)
    assert (0 if not changes else changes[0][0]) == (ticks.index(True) if any(ticks) else 0)
    waited = round(OVER_AFTER_SECONDS / _TICK)
    assert not any(any(ticks[max(0, at - waited + 1) : at]) for at, kind in changes if kind == "over")
