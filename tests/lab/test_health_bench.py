"""A few scenarios of `bench.health` on this kernel: the thrashing model lives, the hung one is failed in time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.health.files import make_big, the_files
from bench.health.play import play
from bench.health.scenario import Scenario
from bench.health.scenarios import SHORT, playable
from bench.health.soak import soak
from bench.health.stage import Stage
from bench.health.starving import can_starve, starved
from tests.lab.kit.cgroups import Cgroup
from tests.lab.kit.offer import offer
from tests.lab.kit.places import PYTHON
from tests.lab.kit.wait import until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(offer().mode is None, reason=offer().reason),
]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder on the disk, open to the users that model and sidecars run as; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory(prefix="oomguard-health-") as path:
        Path(path).chmod(0o755)
        make_big(Path(path))
        yield Path(path)


@pytest.fixture(scope="module")
def stage(folder: Path) -> Iterator[Stage]:
    """Both sidecars, for all scenarios."""
    with Stage(folder / "stage") as running:
        yield running


def short(name: str) -> Scenario:
    """Give a scenario, watched for a short time."""
    scenario = next(one for one in playable() if one.name == name)
    return replace(scenario, seconds=min(scenario.seconds, 20.0))


@pytest.mark.parametrize("name", SHORT)
def test_both_sidecars_are_right(name: str, stage: Stage, folder: Path) -> None:
    """Neither fails a well server, and both fail a hung one within its bound."""
    lines = play(stage, short(name), the_files(folder))
    wrong = [line for line in lines if line.wrong_of_ours]
    assert not wrong, wrong


def test_a_soak_follows_the_sidecars_memory(stage: Stage) -> None:
    """A soak plays at least once, and says how large both sidecars are."""
    found = soak(stage, [short("answers 500")], seconds=0.0, seed=1)
    assert [line.judge for line in found.lines] == ["A", "B", "C"]
    assert not found.wrong
    assert all(10 < mib < 200 for points in found.memory.values() for _, mib in points), found.memory
    assert set(found.memory) == {"b", "c"}


def test_a_server_that_should_be_well_and_dies_is_no_result(stage: Stage, folder: Path) -> None:
    """A scenario that did not go as meant raises, so that it passes for no right answer."""
    dies = replace(short("idle"), act=lambda _, subject: subject.group.kill_all(), seconds=1.0)
    with pytest.raises(AssertionError, match="is gone"):
        play(stage, dies, the_files(folder))


@pytest.mark.skipif(not can_starve(), reason="no CPU controller of cgroup v1")
def test_a_starved_process_gets_its_share_and_no_more() -> None:
    """A busy process stands nearly still under the quota, and is back in its own group afterwards."""
    with Cgroup.make("starving") as group:
        process = group.spawn([PYTHON, "-S", "-c", "while True: pass"])
        cgroups = Path(f"/proc/{process.pid}/cgroup")
        before = until(
            lambda: (text := cgroups.read_text()).count(group.path) == len(group.trees) and text, 20, "to join"
        )
        with starved([process.pid], 0.01) as quota:
            began, ticks = time.monotonic(), _ticks(process.pid)
            while (shown := _throttled(quota)) < 2 and time.monotonic() < began + 60:
                time.sleep(0.1)
            assert shown >= 2
            assert _ticks(process.pid) - ticks <= 0.05 * 100 * (time.monotonic() - began) + 10
        assert cgroups.read_text() == before
        assert not quota.exists()


def _ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def _throttled(group: Path) -> int:
    lines = (group / "cpu.stat").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("nr_throttled")))
