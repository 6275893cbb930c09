"""Ends of all kinds on this host's kernel: real models, real ends, a real sidecar apart from them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.lab.cases import (
    Case,
    cases_of,
    crowd,
    ends,
    exits,
    haste,
    kernel_log,
    killers,
    memory,
    probes,
    restart,
    signals,
    unpressed,
)
from tests.lab.cases.stage import Stage
from tests.lab.cases.verdicts import late, table, write_table
from tests.lab.kit.cgroups import NotOfferedError
from tests.lab.kit.offer import offer

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(offer().mode is None, reason=offer().reason),
]

CASES = [
    case for module in (ends, memory, signals, exits, haste, crowd, killers, unpressed) for case in cases_of(module)
]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One sidecar for all cases, as on a node with many models."""
    with Stage() as running:
        yield running
        write_table(os.uname().release, table(running.told))
        assert not running.complaints()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_end_on_this_kernel(case: Case, stage: Stage) -> None:
    """See the docstring of the case."""
    try:
        case.run(stage)
    except NotOfferedError as error:
        pytest.skip(str(error))


def test_first_verdicts_within_a_second(stage: Stage) -> None:
    """Nine of ten at the least: a busy machine may stop the sidecar itself for a moment."""
    assert len(late(stage.told)) <= len(stage.told) // 10, table(stage.told)


@pytest.mark.parametrize("case", cases_of(restart), ids=lambda case: case.name)
def test_restart_of_the_sidecar(case: Case) -> None:
    """See the docstring of the case."""
    case.run()


@pytest.mark.parametrize("case", [*cases_of(probes), *cases_of(kernel_log)], ids=lambda case: case.name)
def test_end_with_a_sidecar_of_its_own(case: Case) -> None:
    """See the docstring of the case."""
    try:
        write_table(case.name, table(case.run()))
    except NotOfferedError as error:
        pytest.skip(str(error))
