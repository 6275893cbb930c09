"""The cases of `tests.lab.cases.readings` on this host's kernel."""

from __future__ import annotations

import pytest

from tests.lab.cases import Case, cases_of, readings
from tests.lab.kit.cgroups import NotOfferedError

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("case", cases_of(readings), ids=lambda case: case.name)
def test_reading_on_this_kernel(case: Case) -> None:
    """See the docstring of the case."""
    try:
        case.run()
    except NotOfferedError as error:
        pytest.skip(str(error))
