"""What counts as a right answer in `bench.health`, and what is summed up over runs."""

from __future__ import annotations

import json

import pytest

from bench.health.__main__ import summary
from bench.health.line import Line
from bench.health.pace import EMULATED, HERE, Pace
from bench.health.run import Run
from bench.health.scenarios import ALL, SHORT, playable
from bench.health.soak import Soak
from bench.preflight.cases import CASES


def line(judge: str = "C", *, healthy: bool = True, after: float | None = None) -> Line:
    """Make a line; a hang has a bound of 11 s."""
    return Line(
        scenario="some",
        judge=judge,
        healthy=healthy,
        failed=after is not None,
        failed_after_s=after,
        bound_s=None if healthy else 11.0,
    )


@pytest.mark.parametrize(
    ("one", "right"),
    [
        (line(), True),
        (line(after=3.0), False),
        (line(healthy=False), False),
        (line(healthy=False, after=11.0), True),
        (line(healthy=False, after=11.1), False),
        (line(healthy=False, after=-0.5), False),
    ],
    ids=["well, left alone", "well, failed", "hang, missed", "hang, in time", "hang, too late", "hang, before it hung"],
)
def test_an_answer_is_right_or_wrong(one: Line, *, right: bool) -> None:
    """A well server is left alone; a hang is failed in time, and not before it happened."""
    assert one.right is right


def test_a_line_comes_back_from_json() -> None:
    """What a lane tells is what the run gets."""
    one = line(healthy=False, after=4.2)
    assert Line.read(json.loads(json.dumps(one.document()))) == one


def test_only_a_sidecars_wrong_answer_is_ours() -> None:
    """The plain prober is expected to be wrong; it fails no run."""
    run = Run([line("A", after=3.0), line("B"), line("C", after=3.0)])
    assert run.wrong == [line("C", after=3.0)]
    assert Soak(1, run.lines).document()["wrong_plain"] == 1


def test_memory_that_grows_in_the_second_half_is_not_flat() -> None:
    """What fills in the first half is no growth; a MiB more in the second one is."""
    flat, growing = [(0.1, 41.0), (15.0, 44.5), (30.0, 45.4)], [(0.1, 44.0), (15.0, 44.5), (30.0, 45.6)]
    assert Soak(1, memory={"b": flat, "c": growing}).grew == ["c"]


def test_a_run_takes_what_lanes_tell() -> None:
    """Lines are kept; what was not played is kept with its reason, apart from what this machine cannot play."""
    run = Run()
    run.take({"line": line().document()})
    run.take({"name": "one", "why": "it broke", "for_good": False})
    shown = run.take({"name": "two", "why": "no machine", "for_good": True})
    assert ([line()], {"one": "it broke"}, {"two": "no machine"}) == (run.lines, run.unplayed, run.unplayable)
    assert "no machine" in shown


def test_runs_are_summed_up() -> None:
    """Wrong answers are counted by judge and by scenario, and what was not played by its name."""
    runs = [Run([line("A", after=1.0), line("C")]), Run([line("A", after=1.0), line("C", after=1.0)], {"x": "broke"})]
    found = summary(runs)
    assert found["wrong"] == {"A": 2, "B": 0, "C": 1}
    assert found["wrong_by_scenario"] == {"some: A": 2, "some: C": 1}
    assert found["unplayed"] == {"x": 1}


@pytest.mark.parametrize("pace", [HERE, EMULATED], ids=["here", "emulated"])
def test_a_bound_leaves_the_rule_its_time(pace: Pace) -> None:
    """No bound is shorter than what the plain rule, or patience, may take by its own numbers."""
    assert all(bound > pace.plain_seconds for bound in pace.idle().values())
    assert pace.pressed()["B"] > pace.plain_seconds + pace.credit_seconds
    assert pace.plain_seconds < pace.pressed()["C"] <= 30


def test_every_scenario_has_its_own_name() -> None:
    """Names tell scenarios apart, and those that stand for all are among them."""
    names = [one.name for one in ALL]
    assert len(set(names)) == len(names)
    assert set(SHORT) <= {one.name for one in playable()}


def test_every_load_is_a_known_path() -> None:
    """What is loaded at a start is a case of the preflight bench."""
    known = {case.name for case in CASES}
    loads = [one.name.removeprefix("start: ") for one in ALL if one.name.startswith("start: ")]
    assert loads
    assert set(loads) <= known
