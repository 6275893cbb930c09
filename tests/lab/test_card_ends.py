"""Ends about a GPU, on pretend cards: see `tests.lab.cases.cards`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.lab.cases import Case, cards, cases_of
from tests.lab.cases.verdicts import table, write_table
from tests.lab.kit.offer import offer
from tests.stubs.pretend import LIBRARIES

pytestmark = [
    pytest.mark.lab,
    pytest.mark.torch,
    pytest.mark.skipif(offer().mode is None, reason=offer().reason),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.skipif(not (LIBRARIES / "libcudart.so.13").exists(), reason="no CUDA stubs: tests/stubs/build.py"),
]


@pytest.fixture(scope="module")
def there() -> Iterator[cards.CardStage]:
    """One sidecar and one card for all cases."""
    with cards.card_stage() as running:
        yield running
        write_table("cards", table(running.stage.told))


@pytest.mark.parametrize("case", cases_of(cards), ids=lambda case: case.name)
def test_end_about_a_card(case: Case, there: cards.CardStage) -> None:
    """See the docstring of the case."""
    case.run(there)
