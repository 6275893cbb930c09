"""From membership and mounts to levels, in the shapes of every runtime. Lines as the kernel prints them."""

from __future__ import annotations

import os
import posixpath
import subprocess

import pytest

from guard.kernel.locate import locate, scope_of
from guard.kernel.reader import Reader
from guard.kernel.values import CgroupVersion, Chain, LevelScope
from guard.model import Known, Unknown, Why
from tests.guard.kernel.conftest import Grow, Tree

ID = "3ca333cfd1aab08fb8971ea93861c4c13ca333cfd1aab08fb8971ea93861c4c1"
UID = "1a2b3c4d-0001-4002-8003-1a2b3c4d5e6f"
DASHED = UID.replace("-", "_")

ALIVE = f"12 (python) S 1 12 12 0 -1 4194304 {'0 ' * 12}100 0\n"
ENDING = ALIVE.replace(" 4194304 ", " 4194308 ")  # PF_EXITING
V2_ROOT = {"sys/fs/cgroup/cgroup.controllers": "memory\n"}
V2_NOT_ROOT = {"sys/fs/cgroup/cgroup.events": "populated 1\n"}
V1_ROOT = {"sys/fs/cgroup/memory/cgroup.sane_behavior": "0\n"}


def _mount(point: str, fs_type: str, *, root: str = "/", options: str = "rw") -> str:
    return f"31 23 0:28 {root} {point} rw,relatime shared:9 - {fs_type} {fs_type} {options}\n"


V2_MOUNT = _mount("/sys/fs/cgroup", "cgroup2")
HYBRID_MOUNTS = (
    _mount("/sys/fs/cgroup", "tmpfs")
    + _mount("/sys/fs/cgroup/memory", "cgroup", options="rw,memory")
    + _mount("/sys/fs/cgroup/cpu,cpuacct", "cgroup", options="rw,cpu,cpuacct")
    + _mount("/sys/fs/cgroup/unified", "cgroup2", options="rw,nsdelegate")
)


def _process(cgroup: str, mounts: str, pid: str = "self") -> Tree:
    return {f"proc/{pid}/cgroup": cgroup, f"proc/{pid}/mountinfo": mounts, f"proc/{pid}/stat": ALIVE}


def _group(*directories: str) -> Tree:
    """Directories that exist, by a file in each."""
    return {f"{directory.lstrip('/')}/cgroup.procs": "" for directory in directories}


def _chain(reader: Reader, pid: int | None = None) -> Chain:
    found = locate(reader, pid)
    assert isinstance(found, Known), found
    return found.value


def _why(reader: Reader, pid: int | None = None) -> Why:
    found = locate(reader, pid)
    assert isinstance(found, Unknown), found
    return found.why


POD_SHAPES = {
    "containerd, cgroupfs driver": f"/kubepods/burstable/pod{UID}/{ID}",
    "containerd, systemd driver": (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{DASHED}.slice/cri-containerd-{ID}.scope"
    ),
    "CRI-O": f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{DASHED}.slice/crio-{ID}.scope",
    "kind": (
        "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        f"kubelet-kubepods-burstable-pod{DASHED}.slice/cri-containerd-{ID}.scope"
    ),
    "Docker shim, systemd driver": (
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{DASHED}.slice/docker-{ID}.scope"
    ),
    "static pod of an old kubelet": f"/kubepods/besteffort/pod{UID.replace('-', '')}/{ID}",
}


@pytest.mark.parametrize("path", POD_SHAPES.values(), ids=POD_SHAPES)
def test_a_pod_on_v2_has_its_container_pod_and_qos_levels(grow: Grow, path: str) -> None:
    """Both kubelet drivers and every runtime give container, pod, QoS and the levels above, own first, root last."""
    directory = f"/sys/fs/cgroup{path}"
    chain = _chain(grow({**_process(f"0::{path}\n", V2_MOUNT), **_group(directory), **V2_ROOT}))
    scopes = [level.scope for level in chain.levels]
    assert scopes[:3] == [LevelScope.CONTAINER, LevelScope.POD, LevelScope.QOS]
    assert set(scopes[3:-1]) == {LevelScope.SLICE}
    assert scopes[-1] is LevelScope.ROOT
    assert (chain.levels[0].name, chain.levels[-1].name) == (path, "/")
    for level in chain.levels:
        assert level.memory_dir == posixpath.normpath(f"/sys/fs/cgroup/{level.name}")
        assert level.version is CgroupVersion.V2
        assert level.memory_dir == level.unified_dir == level.cpu_dir
    assert not chain.hidden_ancestors


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("/", LevelScope.ROOT),
        ("/..", LevelScope.ROOT),
        (f"/docker/{ID}", LevelScope.CONTAINER),
        (f"/system.slice/docker-{ID}.scope", LevelScope.CONTAINER),
        (f"/../cri-containerd-{ID}.scope", LevelScope.CONTAINER),
        (f"/kubepods/pod{UID}/{ID}", LevelScope.CONTAINER),
        (f"/kubepods/pod{UID}", LevelScope.POD),
        (f"/kubepods.slice/kubepods-pod{DASHED}.slice", LevelScope.POD),
        (f"/kubepods.slice/x/crio-{ID}.scope/container", LevelScope.CONTAINER),
        (f"/kubepods.slice/x/crio-conmon-{ID}.scope", LevelScope.OTHER),
        (
            f"/system.slice/containerd.service/kubepods-burstable-pod{DASHED}.slice:cri-containerd:{ID}",
            LevelScope.CONTAINER,
        ),
        (f"/machine.slice/libpod-{ID}.scope/container", LevelScope.CONTAINER),
        (f"/machine.slice/machine-libpod_pod_{ID}.slice", LevelScope.POD),
        (f"/libpod_parent/libpod-{ID}", LevelScope.CONTAINER),
        (f"/libpod_parent/{ID}", LevelScope.POD),
        (f"/libpod_parent/{ID}/libpod-{ID}", LevelScope.CONTAINER),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", LevelScope.CONTAINER),
        ("/user.slice/user-1000.slice/user@1000.service", LevelScope.OTHER),
        ("/user.slice/user-1000.slice", LevelScope.SLICE),
        ("/kubepods/burstable", LevelScope.QOS),
        ("/kubepods.slice/kubepods-besteffort.slice", LevelScope.QOS),
        ("/kubepods", LevelScope.SLICE),
        ("/docker", LevelScope.SLICE),
        ("/system.slice/burstable", LevelScope.OTHER),
        ("/system.slice/llama.service", LevelScope.OTHER),
        ("/container", LevelScope.OTHER),
    ],
)
def test_a_level_is_named_by_its_path(path: str, scope: LevelScope) -> None:
    """The last name, with its parent, says what a level stands for."""
    assert scope_of(path) is scope


def test_docker_on_v1_is_seen_from_the_host(grow: Grow) -> None:
    """On v1 the memory hierarchy gives the levels, cpu and pressure come from the same path of their trees."""
    path = f"/docker/{ID}"
    cgroup = f"5:memory:{path}\n3:cpu,cpuacct:{path}\n1:name=systemd:{path}\n0::{path}\n"
    places = [f"/sys/fs/cgroup/{tree}{path}" for tree in ("memory", "cpu,cpuacct", "unified")]
    chain = _chain(grow({**_process(cgroup, HYBRID_MOUNTS), **_group(*places), **V1_ROOT}))
    own = chain.levels[0]
    assert [own.memory_dir, own.cpu_dir, own.unified_dir] == places
    assert own.version is CgroupVersion.V1
    assert [level.name for level in chain.levels] == [path, "/docker", "/"]
    assert not chain.hidden_ancestors


def test_docker_on_v1_sees_its_own_level_alone(grow: Grow) -> None:
    """Inside a v1 container the mount's root is the container's own path: one level, ancestors hidden."""
    path = f"/docker/{ID}"
    mounts = _mount("/sys/fs/cgroup/memory", "cgroup", root=path, options="rw,memory")
    reader = grow({**_process(f"5:memory:{path}\n", mounts), **_group("/sys/fs/cgroup/memory")})
    chain = _chain(reader)
    assert [(level.name, level.memory_dir, level.scope) for level in chain.levels] == [
        (path, "/sys/fs/cgroup/memory", LevelScope.CONTAINER)
    ]
    assert chain.hidden_ancestors


def test_a_nested_group_in_a_v1_container_is_found(grow: Grow) -> None:
    """A group below the container's own is two levels."""
    path = f"/docker/{ID}"
    mounts = _mount("/sys/fs/cgroup/memory", "cgroup", root=path, options="rw,memory")
    reader = grow({**_process(f"5:memory:{path}/worker\n", mounts), **_group("/sys/fs/cgroup/memory/worker")})
    assert [level.memory_dir for level in _chain(reader).levels] == [
        "/sys/fs/cgroup/memory/worker",
        "/sys/fs/cgroup/memory",
    ]


def test_a_private_namespace_on_v2_hides_ancestors(grow: Grow) -> None:
    """`0::/` below a mount of root `/` is the container's own group if that has what the real root never has."""
    reader = grow({**_process("0::/\n", V2_MOUNT), **_group("/sys/fs/cgroup"), **V2_NOT_ROOT})
    chain = _chain(reader)
    assert chain.hidden_ancestors
    assert [(level.name, level.scope) for level in chain.levels] == [("/", LevelScope.CONTAINER)]


def test_the_real_root_on_v2_is_the_root(grow: Grow) -> None:
    """The same lines at the real root: nothing is hidden."""
    chain = _chain(grow({**_process("0::/\n", V2_MOUNT), **V2_ROOT}))
    assert not chain.hidden_ancestors
    assert [level.scope for level in chain.levels] == [LevelScope.ROOT]


def test_a_group_inside_a_private_namespace_has_the_container_above(grow: Grow) -> None:
    """A container that makes groups of its own (systemd in it, CRI-O's nested one) shows both levels."""
    reader = grow({**_process("0::/init.scope\n", V2_MOUNT), **_group("/sys/fs/cgroup/init.scope"), **V2_NOT_ROOT})
    assert [level.scope for level in _chain(reader).levels] == [LevelScope.OTHER, LevelScope.CONTAINER]


SIBLING = f"/../cri-containerd-{ID}.scope"


def test_a_sibling_is_found_through_its_own_mounts(grow: Grow) -> None:
    """With a shared PID namespace: its path is relative to ours, and so is the root of its mount."""
    reader = grow(
        {
            **_process("0::/\n", V2_MOUNT),
            **_process(f"0::{SIBLING}\n", _mount("/sys/fs/cgroup", "cgroup2", root=SIBLING), pid="12"),
            **_group("/sys/fs/cgroup", "/proc/12/root/sys/fs/cgroup"),
            **{f"proc/12/root/{path}": text for path, text in V2_NOT_ROOT.items()},
        }
    )
    chain = _chain(reader, 12)
    assert [level.memory_dir for level in chain.levels] == ["/proc/12/root/sys/fs/cgroup"]
    assert chain.levels[0].name == SIBLING
    assert chain.levels[0].scope is LevelScope.CONTAINER
    assert chain.hidden_ancestors


def test_a_process_that_our_own_mounts_show_is_found_there(grow: Grow) -> None:
    """For a process of the same view no detour through its root is taken, so its user does not matter."""
    reader = grow(
        {
            **_process("0::/a\n", V2_MOUNT),
            **_process("0::/a/b\n", V2_MOUNT, pid="12"),
            **_group("/sys/fs/cgroup/a/b"),
            **V2_ROOT,
        }
    )
    assert _chain(reader, 12).levels[0].memory_dir == "/sys/fs/cgroup/a/b"


def test_a_sibling_that_no_mount_shows_is_hidden(grow: Grow) -> None:
    """A process outside of our namespace whose mounts we may not follow is HIDDEN, not the group of someone else."""
    reader = grow({**_process("0::/\n", V2_MOUNT), **_process("0::/../x\n", V2_MOUNT, pid="12"), **V2_NOT_ROOT})
    assert _why(reader, 12) is Why.HIDDEN


def test_the_mount_that_shows_most_is_taken(grow: Grow) -> None:
    """With the host's tree mounted as well (cgroupns=host), all levels up to the root are found."""
    path = f"/docker/{ID}"
    mounts = _mount("/sys/fs/cgroup", "cgroup2", root=path) + _mount("/host/cgroup", "cgroup2")
    reader = grow({**_process(f"0::{path}\n", mounts), **_group("/sys/fs/cgroup", f"/host/cgroup{path}")})
    chain = _chain(reader)
    assert [level.memory_dir for level in chain.levels] == [
        f"/host/cgroup{path}",
        "/host/cgroup/docker",
        "/host/cgroup",
    ]
    assert not chain.hidden_ancestors


def test_a_covered_mount_is_not_used(grow: Grow) -> None:
    """A mount that a later one covers is in mountinfo still; a later one at the same place counts, or what is there."""
    mounts = V2_MOUNT.replace(" / ", " /.. ") + V2_MOUNT + _mount("/covered", "cgroup2")
    reader = grow({**_process("0::/a\n", mounts), **_group("/sys/fs/cgroup/a"), **V2_NOT_ROOT})
    assert _chain(reader).levels[0].memory_dir == "/sys/fs/cgroup/a"


def test_other_paths_in_other_trees_are_not_mixed(grow: Grow) -> None:
    """A process that sits at the root of the v2 tree has no pressure of its own group, only that of the root."""
    reader = grow(
        {
            **_process("4:memory:/a\n2:cpu,cpuacct:/b\n0::/\n", HYBRID_MOUNTS),
            **_group("/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/cpu,cpuacct/b", "/sys/fs/cgroup/unified"),
            **V1_ROOT,
        }
    )
    own, root = _chain(reader).levels
    assert (own.unified_dir, own.cpu_dir) == (None, None)
    assert (root.unified_dir, root.cpu_dir) == ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu,cpuacct")


def test_v1_without_the_v2_tree_has_no_pressure(grow: Grow) -> None:
    """On pure v1 there are no pressure files at any level."""
    mounts = _mount("/sys/fs/cgroup/memory", "cgroup", options="rw,memory")
    reader = grow({**_process("4:memory:/a\n", mounts), **_group("/sys/fs/cgroup/memory/a"), **V1_ROOT})
    assert {level.unified_dir for level in _chain(reader).levels} == {None}


def test_no_cgroup_mount_is_missing(grow: Grow) -> None:
    """Without a cgroup mount there is nothing to read."""
    assert _why(grow(_process("0::/\n", _mount("/proc", "proc")))) is Why.MISSING


def test_a_process_without_membership_is_missing(grow: Grow) -> None:
    """Without a v2 line and without a v1 memory controller there is no hierarchy to look in."""
    assert _why(grow(_process("1:name=systemd:/\n", V2_MOUNT))) is Why.MISSING


def test_a_group_whose_directory_is_gone_is_missing(grow: Grow) -> None:
    """A path that the mount should show and does not is MISSING."""
    assert _why(grow({**_process("0::/a\n", V2_MOUNT), **V2_ROOT})) is Why.MISSING


def test_a_removed_group_is_gone(grow: Grow) -> None:
    """The kernel marks the path of a removed group."""
    assert _why(grow({**_process("0::/a (deleted)\n", V2_MOUNT), **V2_ROOT})) is Why.GONE


@pytest.mark.parametrize("missing", ["proc/self/cgroup", "proc/self/mountinfo"])
def test_a_missing_file_is_passed_on(grow: Grow, missing: str) -> None:
    """What cannot be read says so itself."""
    tree = dict(_process("0::/\n", V2_MOUNT))
    del tree[missing]
    found = locate(grow(tree))
    assert isinstance(found, Unknown)
    assert (found.why, found.where) == (Why.MISSING, f"/{missing}")


@pytest.mark.parametrize(("cgroup", "mounts"), [("odd\n", V2_MOUNT), ("0::/\n", "odd\n")])
def test_odd_files_are_malformed(grow: Grow, cgroup: str, mounts: str) -> None:
    """Membership or mounts of another shape are MALFORMED."""
    assert _why(grow(_process(cgroup, mounts))) is Why.MALFORMED


def test_a_dead_process_is_missing(grow: Grow) -> None:
    """A pid without files is MISSING."""
    assert _why(grow(_process("0::/\n", V2_MOUNT)), 12) is Why.MISSING


def test_a_process_that_is_ending_is_in_no_group(grow: Grow) -> None:
    """The kernel says "/" of a process that is ending, wherever it was: its levels are unknown, not the root's."""
    lines = "4:memory:/\n0::/\n"
    tree = {**_process(lines, HYBRID_MOUNTS), **_process(lines, HYBRID_MOUNTS, pid="12"), **V1_ROOT}
    tree |= _group("/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified")
    assert len(_chain(grow(tree), 12).levels) == 1
    assert _why(grow({**tree, "proc/12/stat": ENDING}), 12) is Why.GONE


def test_a_real_zombie_is_in_no_group() -> None:
    """A process that nobody has reaped yet has no levels."""
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        found = locate(Reader(), child.pid)
        assert isinstance(found, Unknown)
        assert found.why is Why.GONE
