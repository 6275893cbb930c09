"""Figures, goals and the statistics of the benchmark."""

from __future__ import annotations

import pytest

from bench.sidecar.figures import Figure, Goal, Part, median, percentile, short


@pytest.mark.parametrize(
    ("goal", "value", "holds"),
    [
        (Goal(at_most=2), 2, True),
        (Goal(at_most=2), 2.1, False),
        (Goal(at_least=8), 8, True),
        (Goal(at_least=8), 7.9, False),
        (Goal(at_least=1, at_most=2), 3, False),
        (Goal(at_most=2), None, False),
    ],
)
def test_a_goal_is_a_closed_bound(goal: Goal, value: float | None, *, holds: bool) -> None:
    """Both ends belong to the bound, and what was not measured holds no goal."""
    assert goal.holds(value) is holds


def test_a_figure_without_a_goal_is_neither_held_nor_not() -> None:
    """`held` is then absent from the document, and the part is not failed by it."""
    figure = Figure(name="load", value=3.0, unit="us")
    assert figure.held is None
    assert figure.document() == {"value": 3.0, "unit": "us"}
    assert Part("part", "Title", (figure,)).missed == ()


def test_a_part_names_the_goals_that_are_not_held() -> None:
    """By the names of their figures, and the table marks them."""
    good = Figure(name="good", value=1, unit="s", goal=Goal(at_most=1), beside={"peer": 2.5})
    bad = Figure(name="bad", value=None, unit="s", goal=Goal(at_most=1))
    part = Part("part", "Title", (good, bad))
    assert part.missed == ("bad",)
    assert part.document() == {
        "title": "Title",
        "figures": {
            "good": {"value": 1, "unit": "s", "goal": {"at_most": 1}, "held": True, "beside": {"peer": 2.5}},
            "bad": {"value": None, "unit": "s", "goal": {"at_most": 1}, "held": False},
        },
    }
    title, first, peer, second = part.table()
    assert title == "Title"
    assert first.split() == ["good", "1", "s", "<=", "1", "held"]
    assert peer.split() == ["peer", "2.5"]
    assert second.split() == ["bad", "-", "s", "<=", "1", "NOT", "HELD"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (7, "7"), (0.01234, "0.0123"), (12.34, "12.3"), (4321.0, "4321"), ("x", "x")]
)
def test_numbers_are_printed_with_three_digits_that_count(value: float | str | None, text: str) -> None:
    """Whole numbers stay whole, unknown is a dash."""
    assert short(value) == text


def test_statistics_of_too_few_values_are_unknown() -> None:
    """No median of nothing, no percentile of one value."""
    assert median([]) is None
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert percentile([1.0], 99) is None
    assert percentile([float(value) for value in range(101)], 99) == 99.0
