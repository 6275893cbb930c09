"""A few scenarios of `bench.health` on this kernel: the thrashing model lives, the hung one is failed in time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.health.__main__ import make_big
from bench.health.play import play
from bench.health.scenarios import SHORT, Scenario, playable
from bench.health.stage import Stage
from tests.lab.kit.offer import offer

pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(180),
    pytest.mark.skipif(offer().mode is None, reason=offer().reason),
]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder on the disk, open to the users that model and sidecars run as; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory(prefix="oomguard-health-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.fixture(scope="module")
def stage(folder: Path) -> Iterator[Stage]:
    """Both sidecars, for all scenarios."""
    with Stage(folder) as running:
        yield running


@pytest.mark.parametrize("scenario", [one for one in playable() if one.name in SHORT], ids=lambda one: one.name)
def test_both_sidecars_are_right(scenario: Scenario, stage: Stage, folder: Path) -> None:
    """Neither fails a well server, and both fail a hung one within its bound."""
    lines = play(stage, replace(scenario, seconds=min(scenario.seconds, 20.0)), {"big": make_big(folder)})
    wrong = [line for line in lines if line.judge != "A" and not line.right]
    assert not wrong, wrong
