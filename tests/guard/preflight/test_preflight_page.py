"""docs/preflight.md says what the code does."""

from __future__ import annotations

import re

from guard.fit.paths import PATHS
from tests.guard.hosts import ROOT

_PAGE = (ROOT / "docs" / "preflight.md").read_text()


def test_every_path_is_in_the_table() -> None:
    """Each path that claims to be measured has a row, and each row a path."""
    rows = set(re.findall(r"^\| `([^`]+)` \| \S+.* \|$", _PAGE.split("measured: begin")[1], re.MULTILINE))
    measured = {path.name for path in PATHS.values() if path.measured}
    assert {name for name in rows if name in PATHS} == measured


def test_no_row_needs_more_than_is_said() -> None:
    """In the table every peak is at most 10 % above what was said, and every kill was named."""
    table = _PAGE.split("measured: begin -->")[1].split("<!-- measured: end")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    assert len(rows) >= len([path for path in PATHS.values() if path.measured])
    for _, _, _, said, peak, _, _, kills in rows:
        assert int(peak) <= 1.1 * int(said) + 1
        named, _, of = kills.partition(" of ")
        assert named == of
