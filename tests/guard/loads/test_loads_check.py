"""The check before each hooked load, below a real limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.guard.hosts import environment, only_box
from tests.guard.preflight import checkpoint_files as write
from tests.lab.kit.cgroups import MIB, Cgroup, Limits

pytestmark = [pytest.mark.lab, pytest.mark.torch]

_HOST = """
import guard, sys
guard.install()
import torch
try:
    torch.load(sys.argv[1], weights_only=True)
except Exception as error:
    print(type(error).__mro__[:2], error)
print(guard.preflight(sys.argv[1]).fits, guard.status().trouble_count)
"""


def _run(path: Path, shared: Path, policy: str | None) -> str:
    env = environment(shared, {} if policy is None else {"OOMGUARD_PREFLIGHT": policy})
    with Cgroup.make("check", Limits(memory_max_bytes=700 * MIB)) as group:
        process = group.spawn([sys.executable, "-c", _HOST, str(path)], env=env, output=subprocess.PIPE)
        out, _ = process.communicate(timeout=50)
    assert process.returncode == 0, out.decode()
    return out.decode()


@pytest.fixture
def too_large(tmp_path: Path) -> Path:
    """Give a sparse zip of 5 GiB that torch refuses by itself once it looks inside."""
    return write.large_zip(tmp_path / "large.pt", 5 << 30)


def test_warns_by_default(too_large: Path, tmp_path: Path) -> None:
    """A load that cannot fit below the limit is said in one line, and goes on; the host sees torch's own error."""
    out = _run(too_large, tmp_path, None)
    assert f"would not fit: torch.load of {too_large} takes at least 5120 MiB that cannot be reclaimed" in out
    assert "og-lab-" in out.split("left in cgroup ")[1].splitlines()[0]
    assert "WouldNotFit" not in out
    assert "False 0" in out.splitlines()


def test_raises_where_the_host_asked_for_it(too_large: Path, tmp_path: Path) -> None:
    """With OOMGUARD_PREFLIGHT=raise the load does not begin, and nothing is left in flight."""
    out = _run(too_large, tmp_path, "raise")
    assert "guard.refusal.WouldNotFit" in out
    assert "False 0" in out.splitlines()
    assert only_box(tmp_path).operations == ()


def test_off(too_large: Path, tmp_path: Path) -> None:
    """With OOMGUARD_PREFLIGHT=off nothing is looked at before a load."""
    out = _run(too_large, tmp_path, "No")
    assert "takes at least" not in out


def test_a_load_that_fits_is_silent(tmp_path: Path) -> None:
    """What fits, or needs no memory of its own, gives no line."""
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.write((72).to_bytes(8, "little"))
        file.write(b'{"a":{"dtype":"U8","shape":[5368709120],"data_offsets":[0,5368709120]}}'.ljust(72))
        file.truncate(80 + (5 << 30))
    code = "import guard; guard.install()\nfrom safetensors.torch import load_file\nload_file({!r})"
    with Cgroup.make("check", Limits(memory_max_bytes=700 * MIB)) as group:
        process = group.spawn(
            [sys.executable, "-c", code.format(str(path))], env=environment(tmp_path), output=subprocess.PIPE
        )
        out, _ = process.communicate(timeout=50)
    assert (process.returncode, out) == (0, b"")
