"""The table of causes in docs/verdicts.md names what is played, all of it and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from tests.lab.cases import (
    cards,
    cases_of,
    crowd,
    ends,
    exits,
    haste,
    kernel_log,
    killers,
    memory,
    oomd,
    probes,
    restart,
    signals,
)

DOCS = Path(__file__).parents[2] / "docs" / "verdicts.md"


def test_every_cause_that_is_played_is_in_the_table() -> None:
    """A case without a line in the table, or a line without a case, is a mistake."""
    modules = (ends, memory, signals, exits, haste, probes, cards, crowd, killers, oomd, kernel_log, restart)
    played = [case.name for module in modules for case in cases_of(module)]
    _, _, section = DOCS.read_text().partition("## Played for real\n")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert sorted(played) == sorted(re.findall(r"`([a-z0-9_]+)`", "\n".join(row.split(" | ")[1] for row in rows)))
