"""The demo itself, played for real: its promises, and that nothing of it stays, however it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.kit.cgroups import PREFIX, lives
from tests.lab.kit.namespaces import Apart
from tests.lab.kit.offer import ROOT
from tests.lab.kit.places import CHECKOUT
from tests.lab.kit.wait import until

DEMO = [sys.executable, "-m", "bench.demo"]


def groups_of(pid: int) -> list[Path]:
    """The cgroups that a demo with this pid has made and not removed."""
    trees = (ROOT, ROOT / "memory", ROOT / "unified", ROOT / "blkio")
    return [group for tree in trees for group in tree.glob(f"{PREFIX}{pid}-*")]


@pytest.mark.lab
@pytest.mark.torch
@pytest.mark.slow
def test_every_promise_holds_and_nothing_stays() -> None:
    """The demo exits with 0, its summary is complete, the record is where it says, and its cgroups are gone."""
    with subprocess.Popen(DEMO, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as demo:
        output, _ = demo.communicate()
    assert demo.returncode == 0, output
    assert "every promise held" in output
    summary = json.loads((CHECKOUT / "build/demo/summary.json").read_text())
    assert summary["reclaim"]["plain_failures"] > 0
    assert summary["reclaim"]["sidecar_failures"] == 0
    assert summary["kill"]["class"] == "cgroup_oom"
    assert (CHECKOUT / "build/demo/shared/record.sqlite").exists()
    assert groups_of(demo.pid) == []


@pytest.mark.lab
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "seconds"),
    [(signal.SIGINT, 130, 0), (signal.SIGTERM, 143, 0), (signal.SIGKILL, -9, 30)],
    ids=["ctrl-c", "term", "kill"],
)
def test_an_interrupted_demo_leaves_nothing(number: signal.Signals, status: int, seconds: float) -> None:
    """Ctrl-C and SIGTERM in the middle of a scene end the demo in order, and after SIGKILL its watcher cleans up."""
    with subprocess.Popen(DEMO, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        until(lambda: "plain probe" in (demo.stdout.readline() if demo.stdout else ""), 50, "the first scene")
        groups = groups_of(demo.pid)
        assert groups
        inside = {
            int(pid) for group in groups for file in group.rglob("cgroup.procs") for pid in file.read_text().split()
        }
        assert inside
        demo.send_signal(number)
        demo.communicate()
    assert demo.returncode == status
    until(lambda: not groups_of(demo.pid), seconds, "its cgroups to be gone")
    assert [pid for pid in inside if lives(pid)] == []


@pytest.mark.lab
def test_without_rights_it_says_what_is_missing() -> None:
    """A user who cannot make cgroups gets exit status 2 and one sentence."""
    done = subprocess.run(Apart(uid=65534).wrap(DEMO), cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not root" in done.stdout
    assert len(done.stdout.splitlines()) == 1
