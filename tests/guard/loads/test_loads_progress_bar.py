"""The progress bar that people see, on a real terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from guard.hooks.progress_bar import line
from tests.guard.hosts import environment

_MIB = 1 << 20
_HOST = """
import guard, sys, time
guard.install()
from safetensors import safe_open
from tests.guard.preflight import checkpoint_files as write
from pathlib import Path
path = write.safetensors(Path(sys.argv[1]) / "m.safetensors", {f"layer.{i}": ("U8", 1 << 20) for i in range(12)})
with safe_open(path, "np") as opened:
    for name in opened.keys():
        opened.get_tensor(name)
        time.sleep(0.06)
print("ready")
"""


def _screen(folder: Path, more: dict[str, str]) -> str:
    """Run the host with a terminal as its standard error, and give all that was written to that."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _HOST, str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=environment(folder, more),
    )
    os.close(theirs)
    seen = b""
    try:
        while True:
            ready, _, _ = select.select([ours], [], [], 30)
            assert ready, "the host says nothing and does not end"
            seen += os.read(ours, 4096)
    except OSError:  # EIO: the other side is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(30) == 0, seen
    return seen.decode()


@pytest.mark.torch
def test_on_a_terminal(tmp_path: Path) -> None:
    """The file, the share and the tensor are shown on one line, which is taken away at the end."""
    screen = _screen(tmp_path, {})
    assert "m.safetensors [" in screen
    assert "of 12 MiB" in screen
    assert "layer." in screen
    assert "\n" not in screen
    assert screen.endswith("\r")
    assert screen.split("\r")[-2].strip() == ""


@pytest.mark.torch
def test_switched_off(tmp_path: Path) -> None:
    """OOMGUARD_PROGRESS=off leaves the terminal alone."""
    assert _screen(tmp_path, {"OOMGUARD_PROGRESS": "0"}) == ""


@pytest.mark.torch
def test_not_on_a_terminal(tmp_path: Path) -> None:
    """A log file gets no bar."""
    done = subprocess.run(
        [sys.executable, "-c", _HOST, str(tmp_path)],
        env=environment(tmp_path),
        capture_output=True,
        check=True,
        timeout=50,
    )
    assert done.stderr == b""


def test_line() -> None:
    """Share, sizes, rate and item; what cannot be more than whole stays whole."""
    assert line("m.pt", "a.weight", 50 * _MIB, 100 * _MIB, 2.0) == (
        "m.pt [##########..........]  50%  50 of 100 MiB  25 MiB/s  a.weight"
    )
    assert "100%" in line("m.pt", None, 300, 200, 0.0)
