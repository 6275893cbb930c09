"""The commands of systemd run behind an end, with a deadline. Scripts that print recorded output stand in for them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.supervisors import systemd
from sidecar.supervisors.systemd import SystemdSource
from sidecar.supervisors.values import Subject, Trouble
from tests.sidecar.supervisors.heard import Heard

RECORDED = Path(__file__).parent / "recorded" / "systemd-252"
DOG = Subject(model="llm", groups=("/system.slice/m-dog.service",), alive=False)
NONE = Subject(model="web", groups=("/docker/0123",), alive=True)


def script(folder: Path, name: str, body: str) -> None:
    """Put a program in front of the real one."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs are found first, with both commands as they answered once."""
    script(tmp_path, "systemctl", f'echo "$@" >>"{tmp_path}/asked"; cat "{RECORDED}/m-dog.show"')
    script(tmp_path, "journalctl", f'echo "$@" >>"{tmp_path}/asked"; cat "{RECORDED}/m-dog.jsonl"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def source() -> SystemdSource:
    """Make the source as the daemon does."""
    return SystemdSource(SystemClock(), names={}, subjects=lambda: (DOG, NONE))


async def test_the_unit_of_each_model_is_asked_about(programs: Path) -> None:
    """One unit, one `show`, one look into systemd's own part of the journal; who has no unit costs nothing."""
    heard = Heard()
    await source().look(heard.take)
    last = heard.last("m-dog.service")
    assert last is not None
    assert last.end is not None
    assert [word.kind.value for word in last.end.words] == ["watchdog"]
    show, journal = (programs / "asked").read_text().splitlines()
    assert show.endswith("-- m-dog.service")
    assert journal.endswith("_PID=1 UNIT=m-dog.service")


async def test_a_command_that_hangs_is_given_up(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bus that does not answer holds nothing up for longer than the deadline."""
    monkeypatch.setattr(systemd, "_DEADLINE_SECONDS", 0.3)
    script(programs, "systemctl", "exec sleep 100")
    began = time.monotonic()
    with pytest.raises(Trouble, match="systemctl gave no answer"):
        await source().look(Heard().take)
    assert time.monotonic() - began < 30


async def test_a_command_that_fails_is_told_in_its_own_words(programs: Path) -> None:
    """What it printed is what a person needs."""
    script(programs, "systemctl", "echo 'System has not been booted with systemd as init system.' >&2; exit 1")
    with pytest.raises(Trouble, match="has not been booted") as refused:
        await source().look(Heard().take)
    assert refused.value.lasting


async def test_without_the_right_to_the_journal_show_is_enough(programs: Path) -> None:
    """The unit is told as far as `show` goes, and what lacks is said."""
    script(programs, "journalctl", "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1")
    heard = Heard()
    await source().look(heard.take)
    assert "insufficient permissions" in (heard.lacking[-1] or "")
    last = heard.last("m-dog.service")
    assert last is not None
    assert last.end is not None
    assert last.end.signal == 6


async def test_a_missing_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minimal image has none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Trouble, match="systemctl: No such file"):
        await source().look(Heard().take)
