"""docs/preflight.md says what the code does."""

from __future__ import annotations

import re

from guard.fit.paths import PATHS
from tests.guard.hosts import ROOT

_PAGE = (ROOT / "docs" / "preflight.md").read_text()


def test_every_path_is_in_the_table() -> None:
    """Each path has a row in one of the two tables, by the benchmark or by hand, and each row a path."""
    tables = _PAGE.split("measured: begin")[1].split("## What is told")[0]
    assert set(re.findall(r"^\| `([^`]+)` \| \S+.* \|$", tables, re.MULTILINE)) == set(PATHS)


def test_no_row_needs_more_than_is_said() -> None:
    """In the table every peak is at most 10 % above what was said, and every kill was named."""
    table = _PAGE.split("measured: begin -->")[1].split("<!-- measured: end")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    assert len(rows) > 30
    for _, _, _, said, peak, _, _, *kills in rows:
        assert int(peak) <= 1.1 * int(said) + 1
        for cell in kills:
            named, _, of = cell.partition(" of ")
            assert named == of
