"""Host programs in processes of their own: the guard is a guest, so its manners show only from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from guard.box.reader import parse_box
from guard.model import BoxState, Known

ROOT: Final = Path(__file__).resolve().parents[2]
SITE: Final = ROOT / "guard" / "site"
OURS: Final = b'{"event":"oomguard.failure"'


@dataclass(frozen=True, slots=True)
class Ended:
    """How a host ended. `returncode` is negative for a signal, as subprocess says it."""

    returncode: int
    out: str
    err: str

    @property
    def own_err(self) -> str:
        """Standard error without the lines of the guard."""
        return "".join(line for line in self.err.splitlines(keepends=True) if not line.startswith(OURS.decode()))

    @property
    def lines(self) -> list[str]:
        """The lines of the guard."""
        return [line for line in self.err.splitlines() if line.startswith(OURS.decode())]


def environment(shared: Path, more: Mapping[str, str] | None = None, *, activated: bool = False) -> dict[str, str]:
    """Give the environment of a host: our checkout importable, or activated as `oomguard run` does it."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("OOMGUARD", "PYTHON"))}
    path = SITE if activated else ROOT
    return {
        **clean,
        "PYTHONPATH": str(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OOMGUARD_FENCE": "raise",
        "OOMGUARD_DIR": str(shared),
        "OOMGUARD_TERMINATION_LOG": str(shared / "termination-log"),
        **({"OOMGUARD": "on"} if activated else {}),
        **(more or {}),
    }


def run_host(code: str, shared: Path, more: Mapping[str, str] | None = None, *, activated: bool = False) -> Ended:
    """Run a program to its end."""
    return run_command([sys.executable, "-c", code], environment(shared, more, activated=activated))


def run_command(command: list[str], env: Mapping[str, str], cwd: Path | None = None) -> Ended:
    """Run any command to its end."""
    done = subprocess.run(command, env=dict(env), cwd=cwd, capture_output=True, text=True, timeout=50, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def boxes(shared: Path) -> list[BoxState]:
    """Read every black box in a shared directory, oldest first."""
    found = []
    for path in (shared / "boxes").glob("*.box"):
        state = parse_box(path.read_bytes(), str(path))
        assert isinstance(state, Known), state
        found.append(state.value)
    return sorted(found, key=lambda state: state.created_wall_s)


def only_box(shared: Path) -> BoxState:
    """Read the one black box there is."""
    found = boxes(shared)
    assert len(found) == 1, [state.command for state in found]
    return found[0]
