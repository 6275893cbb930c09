"""How the words of several sources become one level. Pure."""

from __future__ import annotations

import pytest

from guard.pressure import CALM, Gauge, Word, rank


def test_the_worst_word_counts_until_it_is_over() -> None:
    """The worst level that still holds is given, then the next worse one, then calm."""
    gauge = Gauge()
    gauge.hear("watch", Word("warning", "event", 20.0))
    gauge.hear("sidecar", Word("critical", "limit", 10.0))
    assert [gauge.worst(at_s).level for at_s in (0.0, 9.9, 10.0, 19.9, 20.0)] == [
        *("critical", "critical", "warning", "warning", "none")
    ]
    assert gauge.worst(20.0) is CALM


def test_a_source_takes_its_word_back() -> None:
    """A later word of a source replaces its earlier one, and no other source's."""
    gauge = Gauge()
    gauge.hear("sidecar", Word("critical", "limit", 10.0))
    gauge.hear("watch", Word("warning", "event", 10.0))
    gauge.hear("sidecar", Word("none", "over", 10.0))
    assert gauge.worst(0.0).level == "warning"
    gauge.hear("watch", Word("none", "over", 10.0))
    assert gauge.worst(0.0) is CALM


@pytest.mark.parametrize("level", ["", "notice", "CRITICAL", "emergency"])
def test_a_level_of_another_release_says_nothing(level: str) -> None:
    """What this release does not know is no reason to act."""
    gauge = Gauge()
    gauge.hear("sidecar", Word(level, "?", 10.0))
    assert gauge.worst(0.0) is CALM
    assert rank(level) == rank("none") < rank("warning") < rank("critical")
