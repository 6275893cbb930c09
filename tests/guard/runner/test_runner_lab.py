"""`oomguard run` in a real cgroup."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from guard.box import end_note
from guard.model import Known
from tests.guard.hosts import environment
from tests.guard.runner.running import RUN
from tests.lab.kit.cgroups import MIB, Cgroup, Limits

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    ("code", "kills"), [("held = bytearray(256 << 20)", 1), ("import os; os.kill(os.getpid(), 9)", 0)]
)
def test_the_end_note_tells_of_the_kernels_kills(code: str, kills: int, tmp_path: Path) -> None:
    """Without any sidecar: the counter of the cgroup moved, or did not, while the server lived."""
    with Cgroup.make("runner", Limits(memory_max_bytes=96 * MIB)) as group:
        process = group.spawn([*RUN, sys.executable, "-c", code], env=environment(tmp_path))
        assert process.wait(50) == -signal.SIGKILL
    (path,) = (tmp_path / "boxes").glob(f"*{end_note.SUFFIX}")
    note = end_note.parse(path.read_bytes(), path.name)
    assert isinstance(note, Known)
    assert note.value.wait_status == signal.SIGKILL
    assert (note.value.oom_kills_before, note.value.oom_kills_after) == (0, kills)
