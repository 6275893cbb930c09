"""The table as a state diagram for docs/health.md, in mermaid's words: what moves a model between its three answers.

An arrow names every axis whose change alone can take a model that way. States are a function of the evidence, so within
an answer any may follow any, and they are only listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import permutations, product
from typing import Final

from sidecar.health.table import AXES, TABLE, Case, Leniency, Life, Movement, Row, Squeeze, Standing, Work, look_up

_ANSWERS: Final = {"ready": "alive and ready", "shed": "alive, not ready", "failed": "failed"}


def _answer(row: Row) -> str:
    if not row.live:
        return "failed"
    return "ready" if row.ready else "shed"


def _answers() -> dict[tuple[StrEnum, ...], str]:
    found: dict[tuple[StrEnum, ...], str] = {}
    for life, work, standing, squeeze, movement, leniency in product(Life, Work, Standing, Squeeze, Movement, Leniency):
        case = Case(life=life, work=work, standing=standing, squeeze=squeeze, movement=movement, leniency=leniency)
        found[life, work, standing, squeeze, movement, leniency] = _answer(look_up(case))
    return found


def _moves() -> set[tuple[str, str, str]]:
    """Find each change of one axis alone that changes the answer."""
    answers = _answers()
    return {
        (answer, after, name)
        for values, answer in answers.items()
        for axis, name in enumerate(AXES)
        for value in type(values[axis])
        if (after := answers[*values[:axis], value, *values[axis + 1 :]]) != answer
    }


def diagram() -> Iterator[str]:
    """Give the diagram's lines."""
    yield "stateDiagram-v2"
    for answer, title in _ANSWERS.items():
        states = dict.fromkeys(row.state.value for row in TABLE if _answer(row) == answer)
        yield f'    state "{title}: {", ".join(states)}" as {answer}'
    moves = _moves()
    for before, after in permutations(_ANSWERS, 2):
        axes = [name for name in AXES if (before, after, name) in moves]
        if axes:
            yield f"    {before} --> {after}: {', '.join(axes)}"
