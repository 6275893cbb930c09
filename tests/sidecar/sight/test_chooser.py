"""Which way of seeing is taken, and what is said of the better ones that do not work."""

from __future__ import annotations

from pathlib import Path

import pytest

from guard.kernel.reader import Reader
from sidecar.sample import SightKind
from sidecar.settings import Settings, SightChoice, TargetSettings
from sidecar.sight.chooser import Chooser, hands_over
from sidecar.sight.levels import close_levels
from tests.sidecar.trees import build

UID = "0a1b2c3d-1111-2222-3333-444455556666"
OWN = {
    "proc/self/cgroup": "0::/\n",
    "proc/self/mountinfo": "30 25 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
    "sys/fs/cgroup": {"memory.current": "5\n", "cgroup.events": "populated 1\n"},
}
HOST = {
    f"host/sys/fs/cgroup/kubepods/pod{UID}/{'a' * 64}/memory.current": "9\n",
    "host/sys/fs/cgroup/cgroup.controllers": "",
}


def test_own_container_is_the_last_resort_and_the_others_say_why(tmp_path: Path) -> None:
    """With nothing else the sidecar sees itself, and each better way gives its reason."""
    chooser = Chooser(Settings(), Reader(str(build(tmp_path, OWN))))
    seen = chooser.look()
    assert seen is not None
    assert seen.kind is SightKind.OWN
    assert seen.processes == []
    assert set(chooser.refused) == {SightKind.SHARED_PID, SightKind.HOST_CGROUP}
    close_levels(seen.levels)


def test_a_better_sight_replaces_a_worse_one_when_it_appears(tmp_path: Path) -> None:
    """Looking again after the host's tree was mounted gives that one; until then the same object."""
    root = build(tmp_path, OWN)
    chooser = Chooser(Settings(target=TargetSettings(pod_uid=UID)), Reader(str(root)))
    own = chooser.look()
    assert own is not None
    assert chooser.look() is own
    build(tmp_path, HOST)
    better = chooser.look()
    assert better is not None
    assert better.kind is SightKind.HOST_CGROUP
    close_levels(own.levels)
    close_levels(better.levels)


@pytest.mark.parametrize("choice", [SightChoice.HANDOVER, SightChoice.SHARED_PID, SightChoice.HOST_CGROUP])
def test_a_fixed_choice_never_falls_back(tmp_path: Path, choice: SightChoice) -> None:
    """A way that the settings name is used or nothing is seen."""
    assert Chooser(Settings(sight=choice), Reader(str(build(tmp_path, OWN)))).look() is None


def test_which_choices_allow_hand_over() -> None:
    """Hand-over goes with auto and with its own name alone."""
    assert [choice for choice in SightChoice if hands_over(choice)] == [SightChoice.AUTO, SightChoice.HANDOVER]
