"""Ctrl-C while the demo starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.kit.places import CHECKOUT
from tests.lab.kit.wait import until

DEMO = [sys.executable, "-m", "bench.demo"]


def children_map(pid: int, part: str) -> bool:
    """Whether a child of the process has a file mapped whose name holds `part`."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return any(part in Path(f"/proc/{child}/maps").read_text() for child in children)
    except OSError:  # one has ended meanwhile
        return False


@pytest.mark.lab
@pytest.mark.parametrize("part", ["python", "torch"])
def test_an_early_interrupt_is_no_traceback(part: str) -> None:
    """While its first helper starts, and while that imports: the whole group hears it, and no traceback is shown."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(DEMO, cwd=CHECKOUT, process_group=0, **pipes) as demo:
        until(lambda: children_map(demo.pid, part) or demo.poll() is not None, 30, "the first helper")
        os.killpg(demo.pid, signal.SIGINT)
        out, _ = demo.communicate(timeout=30)
    assert b"Traceback" not in out
    assert out.endswith(b"  interrupted; processes and cgroups are gone\n")
    assert demo.returncode == 128 + signal.SIGINT
