"""The text: plain where it is no terminal, as wide as asked for, and with letters that the terminal has."""

from __future__ import annotations

import re

import pytest

from sidecar.report.terminal import text
from tests.sidecar.report.reporting import MIB, event, level, row, story

TOLD = story(
    [row(at, level(stat={}, current=(at + 40) * 10 * MIB if not -20 <= at < -10 else None)) for at in range(-40, 0)],
    event(-9, "warning", "memory that cannot be reclaimed grows", fields={"severity": "warning"}),
)


def test_plain_text_has_no_escapes() -> None:
    """A file or a pipe gets letters alone."""
    said = text(TOLD, columns=100, colours=False, unicode=True)
    assert "\x1b" not in said
    assert said.splitlines()[1] == "A memory limit killed it"
    assert "Whose limit" in said
    assert "-  oom_kill rose from 0 to 1  [memory.events of /pod/llm]" in said


def test_a_terminal_gets_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headline is red where colours are wanted, and NO_COLOR is heeded."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31mA memory limit killed it" in text(TOLD, columns=100, colours=True, unicode=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in text(TOLD, columns=100, colours=True, unicode=True)


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    """Long sentences wrap, curves shrink."""
    said = text(TOLD, columns=columns, colours=False, unicode=True)
    assert max(len(line) for line in said.splitlines()) <= columns


def test_a_curve_with_a_gap() -> None:
    """What is unknown is empty, and what is low is the lowest letter."""
    said = text(TOLD, columns=100, colours=False, unicode=True)
    (line,) = [line for line in said.splitlines() if line.startswith("  in use")]
    assert re.fullmatch(r"  in use +▁+[▂-█]+ {8,}[▂-█]+ +390.0 MiB", line)


def test_letters_of_a_poor_terminal() -> None:
    """Without Unicode the report is ASCII."""
    said = text(TOLD, columns=100, colours=False, unicode=False)
    assert said.isascii()
    assert "_" in said
