"""Finding a pod's container in the host's tree, in the path shapes of every driver and runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guard.kernel.reader import Reader
from guard.model import Unknown
from sidecar.sample import SightKind
from sidecar.settings import TargetSettings
from sidecar.sight.host_cgroup import HostCgroupSight
from sidecar.sight.levels import close_levels
from sidecar.sight.seen import SeenModel
from tests.sidecar.trees import build

UID = "0a1b2c3d-1111-2222-3333-444455556666"
UNDERSCORED = UID.replace("-", "_")
MODEL, PAUSE, OTHER = "a" * 64, "b" * 64, "c" * 64
MOUNT = "/host/sys/fs/cgroup"


def group(size: int) -> dict[str, Any]:
    """Files of one v2 group."""
    return {
        "memory.current": f"{size}\n",
        "memory.max": "max\n",
        "memory.events": "oom_kill 0\n",
        "memory.stat": "anon 1\n",
    }


def look(root: Path, **target: str) -> SeenModel | Unknown:
    """Look for the model in a tree."""
    return HostCgroupSight(Reader(str(root)), "m", TargetSettings(host_cgroup_root=MOUNT, **target)).look()


def host(tmp_path: Path, containers: dict[str, int]) -> Path:
    """Make a v2 tree with these groups, by path and size in bytes."""
    tree: dict[str, Any] = {"cgroup.controllers": "memory\n"}
    for path, size in containers.items():
        tree |= {f"{path}/{name}": content for name, content in group(size).items()}
    return build(tmp_path, {MOUNT: tree})


SHAPES = {
    "cgroupfs": f"kubepods/burstable/pod{UID}/{{}}",
    "cgroupfs-guaranteed": f"kubepods/pod{UID}/{{}}",
    "systemd-containerd": (
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{{}}.scope"
    ),
    "systemd-crio": f"kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{{}}.scope",
    "systemd-docker": f"kubepods.slice/kubepods-pod{UNDERSCORED}.slice/docker-{{}}.scope",
    "kind": f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/cri-containerd-{{}}.scope",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_largest_container_of_the_pod(tmp_path: Path, shape: str) -> None:
    """By the pod's UID alone, its largest container is the model; containers of other pods do not count."""
    other = shape.replace(UID, "f" * 36).replace(UNDERSCORED, "f" * 36)
    root = host(tmp_path, {shape.format(MODEL): 900, shape.format(PAUSE): 10, other.format(OTHER): 5000})
    seen = look(root, pod_uid=UID)
    assert isinstance(seen, SeenModel)
    assert seen.kind is SightKind.HOST_CGROUP
    assert seen.levels[0].name == "/" + shape.format(MODEL)
    assert [level.depth for level in seen.levels] == list(range(len(seen.levels)))
    assert seen.levels[-1].name == "/"
    assert not seen.hidden_ancestors
    close_levels(seen.levels)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"docker/{MODEL}", f"/docker/{MODEL}"),
        (f"system.slice/docker-{MODEL}.scope", f"/system.slice/docker-{MODEL}.scope"),
        (f"machine.slice/libpod-{MODEL}.scope", f"/machine.slice/libpod-{MODEL}.scope"),
        (f"machine.slice/libpod-{MODEL}.scope/container", f"/machine.slice/libpod-{MODEL}.scope/container"),
        (f"libpod_parent/libpod-{MODEL}", f"/libpod_parent/libpod-{MODEL}"),
        (f"user.slice/user-1000.slice/libpod-{MODEL}.scope", f"/user.slice/user-1000.slice/libpod-{MODEL}.scope"),
    ],
)
def test_container_by_the_first_digits_of_its_id(tmp_path: Path, path: str, expected: str) -> None:
    """Docker and Podman containers are found by id, without any pod."""
    root = host(tmp_path, {path: 5, f"docker/{OTHER}": 9000})
    seen = look(root, container_id=MODEL[:12])
    assert isinstance(seen, SeenModel)
    assert seen.levels[0].name == expected
    close_levels(seen.levels)


def test_helpers_of_a_container_are_not_it(tmp_path: Path) -> None:
    """The monitor beside a CRI-O container is passed over, however large it is."""
    pod = f"kubepods.slice/kubepods-pod{UNDERSCORED}.slice"
    root = host(tmp_path, {f"{pod}/crio-conmon-{MODEL}.scope": 9000, f"{pod}/crio-{MODEL}.scope": 5})
    seen = look(root, pod_uid=UID)
    assert isinstance(seen, SeenModel)
    assert seen.levels[0].name == f"/{pod}/crio-{MODEL}.scope"
    close_levels(seen.levels)


def test_v1_trees(tmp_path: Path) -> None:
    """On v1 the memory tree is walked, and pressure and cpu.stat are taken from the trees beside it."""
    path = f"kubepods/burstable/pod{UID}/{MODEL}"
    tree = {
        "memory/memory.usage_in_bytes": "1\n",
        f"memory/{path}/memory.usage_in_bytes": "9\n",
        f"unified/{path}/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        f"cpu/{path}/cpu.stat": "nr_periods 0\n",
    }
    seen = look(build(tmp_path, {MOUNT: tree}), pod_uid=UID)
    assert isinstance(seen, SeenModel)
    assert set(seen.levels[0].files) == {"memory.usage_in_bytes", "memory.pressure", "cpu.stat"}
    close_levels(seen.levels)


def test_same_object_until_the_container_is_another(tmp_path: Path) -> None:
    """Looking again gives the same model, even if another container has grown; a removed one is looked for anew."""
    shape = SHAPES["cgroupfs"]
    root = host(tmp_path, {shape.format(MODEL): 900, shape.format(OTHER): 10})
    sight = HostCgroupSight(Reader(str(root)), "m", TargetSettings(host_cgroup_root=MOUNT, pod_uid=UID))
    first = sight.look()
    assert isinstance(first, SeenModel)
    pod = root / MOUNT.lstrip("/") / f"kubepods/burstable/pod{UID}"
    (pod / OTHER / "memory.current").write_text("99999\n")
    assert sight.look() is first
    (pod / MODEL).rename(root / "gone")
    second = sight.look()
    assert isinstance(second, SeenModel)
    assert second.levels[0].name.endswith(OTHER)
    close_levels(first.levels)
    close_levels(second.levels)


@pytest.mark.parametrize(
    ("tree", "target", "said"),
    [
        ({}, {}, "set target.pod_uid"),
        ({}, {"pod_uid": UID}, "not mounted"),
        ({"cgroup.controllers": "memory\n"}, {"pod_uid": UID}, f"no container of pod {UID}"),
        ({"cgroup.controllers": "memory\n"}, {"container_id": "abc"}, "no container of abc"),
    ],
)
def test_says_why_nothing_is_seen(tmp_path: Path, tree: dict[str, str], target: dict[str, str], said: str) -> None:
    """A missing setting, a missing mount and a missing container are told apart."""
    found = look(build(tmp_path, {MOUNT: tree}), **target)
    assert isinstance(found, Unknown)
    assert said in str(found)
