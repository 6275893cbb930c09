"""From /proc/PID/cgroup and /proc/PID/mountinfo to the chain of cgroup levels of a process.

Theory
    * /proc/PID/cgroup gives the path of the process in each hierarchy, relative to the *reader's* cgroup namespace
      (`/../x` is a sibling). The root field of mountinfo is relative to the same namespace (cgroup_show_path), so
      the place of a process below a mount is the path less that root; if it is not below, the mount does not show it.
    * Whether levels exist above the top of a mount is not told by any path: in a private namespace both are "/".
      The real root of a hierarchy is told by its files. v2: cgroup.events is in every cgroup but the root. v1:
      cgroup.sane_behavior is in the root alone (CFTYPE_NOT_ON_ROOT, CFTYPE_ONLY_ON_ROOT in kernel/cgroup).
    * A process that is ending (PF_EXITING, before it is a zombie) is at "/" of every v1 hierarchy, wherever it was
      (proc_cgroup_show, kernel/cgroup/cgroup.c). So of another process its flags are looked at after its paths.
    * For another process the reader's own mounts are tried first; failing that, the mounts of that process through
      /proc/PID/root, which takes the same user or CAP_SYS_PTRACE.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from guard.kernel import mountinfo, procfs
from guard.kernel.reader import Reader
from guard.kernel.values import CgroupVersion, Chain, LevelPath, LevelScope, Membership, Mount
from guard.model import Known, Reading, Unknown, Why

_DELETED: Final = " (deleted)"  # appended to the path of a removed cgroup (proc_cgroup_show)
_FLAGS: Final = 6  # index behind the command in /proc/PID/stat: field 9 of proc_pid_stat(5)
_PF_EXITING: Final = 0x4  # include/linux/sched.h


def locate(reader: Reader, pid: int | None = None) -> Reading[Chain]:
    """Find the levels of a process, the caller's own by default, its own level first.

    Unknown: MISSING without a cgroup mount or a memory controller, HIDDEN when the mounts do not show the process,
    GONE when its cgroup was removed or the process is ending, else what reading /proc gave.
    """
    memberships = _memberships(reader, "self" if pid is None else str(pid))
    if isinstance(memberships, Unknown):
        return memberships
    if pid is not None and _is_ending(reader, pid):
        return Unknown(Why.GONE, f"/proc/{pid}/cgroup", None, "the process is ending and in no cgroup any more")
    own = _chain_through(reader, "self", "", memberships.value)
    if pid is None or isinstance(own, Known):
        return own
    return _chain_through(reader, str(pid), f"/proc/{pid}/root", memberships.value)


def _memberships(reader: Reader, process: str) -> Reading[tuple[Membership, ...]]:
    path = f"/proc/{process}/cgroup"
    data = reader.read(path)
    return data if isinstance(data, Unknown) else procfs.parse_membership(data.value, path)


def _is_ending(reader: Reader, pid: int) -> bool:
    """Whether the process has begun to end, or is reaped. A stat that cannot be had for another reason says nothing."""
    data = reader.read(f"/proc/{pid}/stat")
    if isinstance(data, Unknown):
        return data.why in (Why.GONE, Why.MISSING)
    words = data.value.rpartition(b")")[2].split()
    return len(words) > _FLAGS and words[_FLAGS].isdigit() and bool(int(words[_FLAGS]) & _PF_EXITING)


@dataclass(frozen=True, slots=True)
class _Place:
    """A cgroup as a mount shows it: `directory` of the mount's top, cgroup path of the top, names below the top."""

    top_directory: str
    top_path: str
    below: tuple[str, ...]

    @property
    def directory(self) -> str:
        """The process's own level."""
        return posixpath.join(self.top_directory, *self.below)

    def levels(self) -> Iterator[tuple[str, str]]:
        """Cgroup path and directory of each level, own first."""
        for depth in range(len(self.below), -1, -1):
            names = self.below[:depth]
            yield posixpath.join(self.top_path, *names), posixpath.join(self.top_directory, *names)


def _chain_through(reader: Reader, process: str, prefix: str, memberships: tuple[Membership, ...]) -> Reading[Chain]:
    """Make the chain with the mounts that `process` sees; `prefix` leads the reader to them."""
    path = f"/proc/{process}/mountinfo"
    data = reader.read(path)
    if isinstance(data, Unknown):
        return data
    mounts = mountinfo.parse(data.value, path)
    if isinstance(mounts, Unknown):
        return mounts
    paths = _paths(memberships)
    unified = _place(reader, "", paths, mounts.value, prefix)
    v1 = "memory" in paths
    memory = _place(reader, "memory", paths, mounts.value, prefix) if v1 else unified
    if isinstance(memory, Unknown):
        return memory
    cpu = _place(reader, "cpu", paths, mounts.value, prefix) if v1 else unified
    version = CgroupVersion.V1 if v1 else CgroupVersion.V2
    return Known(_make_chain(reader, version, memory.value, _directories(unified), _directories(cpu)))


def _paths(memberships: tuple[Membership, ...]) -> dict[str, str]:
    """Cgroup path by v1 controller; "" is the v2 hierarchy."""
    paths = {controller: line.path for line in memberships for controller in line.controllers}
    paths.update(("", line.path) for line in memberships if line.hierarchy_id == 0 and not line.controllers)
    return paths


def _place(
    reader: Reader, controller: str, paths: dict[str, str], mounts: tuple[Mount, ...], prefix: str
) -> Reading[_Place]:
    """Find where the process lies in the hierarchy of a v1 controller, or of v2 for ""."""
    name = f"cgroup {controller or 'v2'}"
    path = paths.get(controller)
    if path is None:
        return Unknown(Why.MISSING, name, None, "the process is in no such hierarchy")
    if path.endswith(_DELETED):
        return Unknown(Why.GONE, path, None, "the cgroup was removed")
    roots = {m.mount_point: m.root for m in mounts if _carries(m, controller)}
    if not roots:
        return Unknown(Why.MISSING, name, None, "no such mount")
    places = [
        _Place(prefix + point, root, below)
        for point, root in roots.items()
        if (below := _names_below(path, root)) is not None
    ]
    if not places:
        return Unknown(Why.HIDDEN, path, None, f"not below what is mounted: {', '.join(sorted(set(roots.values())))}")
    return _last_there(reader, sorted(places, key=lambda place: len(place.below)))


def _last_there(reader: Reader, places: list[_Place]) -> Reading[_Place]:
    """Take the last (it shows most levels) that is really there: an early mount may be covered by a later one."""
    why: Reading[_Place] = Unknown(Why.MISSING, "cgroup")
    for place in reversed(places):
        there = reader.identity(place.directory)
        if isinstance(there, Known):
            return Known(place)
        why = there
    return why


def _carries(mount: Mount, controller: str) -> bool:
    if not controller:
        return mount.fs_type == "cgroup2"
    return mount.fs_type == "cgroup" and controller in mount.super_options


def _names_below(path: str, root: str) -> tuple[str, ...] | None:
    """Names that lead from `root` to `path`, None if it is not below; both may begin with "/..", see the theory."""
    path_names = [name for name in path.split("/") if name]
    root_names = [name for name in root.split("/") if name]
    below = path_names[len(root_names) :]
    if path_names[: len(root_names)] != root_names or ".." in below or "." in below:
        return None
    return tuple(below)


def _directories(place: Reading[_Place]) -> dict[str, str]:
    return {} if isinstance(place, Unknown) else dict(place.value.levels())


def _make_chain(
    reader: Reader, version: CgroupVersion, memory: _Place, unified: dict[str, str], cpu: dict[str, str]
) -> Chain:
    """Put the trees together by cgroup path: a level has the unified (cpu) directory of the same path, if there is one.

    A process may sit at other paths in other hierarchies; pressure of a cgroup with other members would be a lie.
    """
    hidden = not _is_real_root(reader, version, memory.top_directory)
    levels = []
    for name, directory in memory.levels():
        scope = scope_of(name)
        if scope is LevelScope.ROOT and hidden:
            scope = LevelScope.CONTAINER  # the top of a cgroup namespace
        levels.append(
            LevelPath(
                name=name,
                version=version,
                scope=scope,
                memory_dir=directory,
                unified_dir=unified.get(name),
                cpu_dir=cpu.get(name),
            )
        )
    return Chain(tuple(levels), hidden)


def _is_real_root(reader: Reader, version: CgroupVersion, directory: str) -> bool:
    if version is CgroupVersion.V2:
        found = reader.identity(f"{directory}/cgroup.events")
        return isinstance(found, Unknown) and found.why is Why.MISSING
    return isinstance(reader.identity(f"{directory}/cgroup.sane_behavior"), Known)


_ID: Final = "[0-9a-f]{12,64}"
_CONTAINER: Final = re.compile(
    rf"(?:(?:cri-containerd|crio|docker|libpod|nerdctl|podman)[-:])?{_ID}(?:\.scope)?|(?:crio|libpod)-{_ID}"
)
_POD: Final = re.compile(r"(?:.*-)?pod[0-9a-f]{8}[-_0-9a-f]*(?:\.slice)?|.*libpod_pod_[0-9a-f]+(?:\.slice)?")
_QOS: Final = re.compile(r"(?:.*kubepods[-_])?(?:burstable|besteffort|guaranteed)(?:\.slice)?")
_GROUPS: Final = frozenset({"kubepods", "docker", "libpod_parent", "machine", "lxc", "ecs", "podman"})


def scope_of(path: str) -> LevelScope:
    """Say what a level stands for, by the path shapes of the kubelet, containerd, CRI-O, Docker and Podman."""
    names = [name for name in path.split("/") if name and name != ".."]
    if not names:
        return LevelScope.ROOT
    last, parent = names[-1].rpartition(":")[2], names[-2] if len(names) > 1 else ""
    if _CONTAINER.fullmatch(last) or (last == "container" and _CONTAINER.fullmatch(parent)):
        return LevelScope.POD if parent == "libpod_parent" and "-" not in last else LevelScope.CONTAINER
    if _POD.fullmatch(last):
        return LevelScope.POD
    if _QOS.fullmatch(last) and "kubepods" in path:
        return LevelScope.QOS
    if last.endswith(".slice") or last in _GROUPS:
        return LevelScope.SLICE
    return LevelScope.OTHER
