"""The builder of the stubs: idempotent, and never in NVIDIA's way."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

BUILD = Path(__file__).parent / "build.py"


def build(site: Path) -> subprocess.CompletedProcess[str]:
    """Run the command on a site-packages folder."""
    command = [sys.executable, str(BUILD), "--site", str(site)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages folder with the installed torch and nothing else."""
    (tmp_path / "torch").symlink_to(Path(sysconfig.get_path("platlib"), "torch"))
    return tmp_path


def test_the_second_run_changes_nothing(site: Path) -> None:
    """Building twice gives the same files, untouched by the second run."""
    first = build(site)
    assert first.returncode == 0, first.stderr
    libraries = {path: path.stat().st_mtime_ns for path in (site / "nvidia/cu13/lib").iterdir()}
    assert "libcudart.so.13" in {path.name for path in libraries}
    second = build(site)
    assert (second.returncode, "up to date" in second.stdout) == (0, True)
    assert {path: path.stat().st_mtime_ns for path in (site / "nvidia/cu13/lib").iterdir()} == libraries


def test_nvidias_libraries_are_left_alone(site: Path) -> None:
    """Where NVIDIA's wheels are installed nothing is built and nothing is overwritten."""
    real = site / "nvidia/cudnn/lib/libcudnn.so.9"
    real.parent.mkdir(parents=True)
    real.write_bytes(b"NVIDIA's")
    done = build(site)
    assert (done.returncode, "left alone" in done.stdout) == (0, True)
    assert list(site.glob("nvidia/*/lib/*")) == [real]
    assert real.read_bytes() == b"NVIDIA's"


def test_no_torch_is_said(tmp_path: Path) -> None:
    """Without torch the command says so in one line and fails."""
    done = build(tmp_path)
    assert (done.returncode, done.stderr) == (1, f"tests/stubs: no torch below {tmp_path}\n")
