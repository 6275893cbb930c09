"""The table: complete, without dead rows, and never lenient without cause."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from sidecar.health.drawing import diagram
from sidecar.health.table import (
    TABLE,
    Case,
    Leniency,
    Life,
    Movement,
    Squeeze,
    Standing,
    Work,
    look_up,
    markdown,
)
from sidecar.health.values import State

DOCS = Path(__file__).parents[3] / "docs" / "health.md"


def cases() -> Iterator[Case]:
    """Give every combination."""
    for life, work, standing, squeeze, movement, leniency in product(Life, Work, Standing, Squeeze, Movement, Leniency):
        yield Case(life=life, work=work, standing=standing, squeeze=squeeze, movement=movement, leniency=leniency)


def test_every_case_has_an_answer() -> None:
    """The table is complete: look-up never fails."""
    for case in cases():
        look_up(case)


def test_every_row_decides_some_case() -> None:
    """No row is dead text."""
    used = {look_up(case) for case in cases()}
    assert used == set(TABLE)


def test_only_work_and_pressure_excuse_a_failed_probe() -> None:
    """A model that the plain rule failed lives only with declared work, or with pressure, patience and no dead loop."""
    for case in cases():
        if case.standing is Standing.FAILED and case.work is Work.NONE and look_up(case).live:
            if case.life is Life.ENDED:
                continue
            assert case.life is Life.ALIVE
            assert case.squeeze in (Squeeze.RECLAIM, Squeeze.THRASH, Squeeze.JUST_ENDED)
            assert case.movement is not Movement.LOOP_STILL
            assert case.leniency is Leniency.LEFT


def test_pressure_alone_never_excuses() -> None:
    """While pressure lasts a failed model must show progress."""
    for case in cases():
        if case.standing is Standing.FAILED and case.work is Work.NONE and look_up(case).live:
            if case.life is Life.ENDED:
                continue
            assert case.movement is Movement.MOVING or case.squeeze is Squeeze.JUST_ENDED


def test_an_answering_model_is_alive() -> None:
    """No evidence makes a living model that answers in time fail."""
    for case in cases():
        if case.standing is Standing.ANSWERS and case.life is Life.ALIVE:
            assert look_up(case).live


def test_a_ready_model_is_alive() -> None:
    """Readiness goes before liveness: nothing is ready and not alive."""
    assert not [row for row in TABLE if row.ready and not row.live]


def test_a_dead_model_is_dead() -> None:
    """No evidence keeps a dead process or engine alive, or ready while it may be replaced."""
    rows = {look_up(case) for case in cases() if case.life is not Life.ALIVE}
    assert {row.state for row in rows} == {State.DEAD}
    assert not any(row.ready for row in rows)
    assert not any(look_up(case).live for case in cases() if case.life in (Life.DEAD, Life.ENGINE_DEAD))


def test_every_state_can_be_reached() -> None:
    """Each state of the model is the answer of some row."""
    assert {row.state for row in TABLE} == set(State)


@pytest.mark.parametrize("line", list(markdown()))
def test_the_page_shows_the_table(line: str) -> None:
    """docs/health.md holds exactly what the code says (its command is on the page)."""
    assert line in DOCS.read_text(encoding="utf-8").splitlines()


def test_the_page_shows_no_other_rows() -> None:
    """No row of an older table is left on the page."""
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    begin, end = lines.index("<!-- table -->"), lines.index("<!-- end of table -->")
    assert [line for line in lines[begin + 1 : end] if line] == list(markdown())


def test_the_page_shows_the_diagram() -> None:
    """The state diagram on the page is the one that is drawn out of the table."""
    assert "\n".join(["```mermaid", *diagram(), "```"]) in DOCS.read_text(encoding="utf-8")


def test_pressure_alone_fails_no_ready_model() -> None:
    """The diagram's promise: from ready to failed leads no change but the process's end and the plain probe."""
    (line,) = [one for one in diagram() if "ready --> failed" in one]
    assert line.endswith(": process, plain probe")
