"""The host's /sys/fs/cgroup, mounted read-only: the model's container, its pod, QoS and node levels.

Found by name, for every driver and runtime: the kubelet's cgroupfs driver (`kubepods/burstable/pod<uid>/<id>`), its
systemd driver (`kubepods-burstable-pod<uid with _>.slice/cri-containerd-<id>.scope`, `crio-<id>.scope`), Docker
(`docker/<id>`, `docker-<id>.scope`), Podman (`libpod-<id>`, `libpod-<id>.scope`, with `container` below it), also
nested below other groups, as kind does. Helpers of a container (`crio-conmon-…`, `libpod-conmon-…`) are none.

The container is the one that the settings name, else the pod's largest one that is not our own; the choice stays until
the cgroup is gone. No process is seen this way: an end shows as the cgroup's removal.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from guard.kernel import locate
from guard.kernel.reader import Reader
from guard.kernel.values import CgroupVersion, Chain, LevelPath
from guard.model import Known, Unknown, Why
from sidecar.sample import SightKind
from sidecar.settings import TargetSettings
from sidecar.sight.levels import open_levels
from sidecar.sight.seen import SeenModel

_MOST_GROUPS: Final = 20_000  # a node runs some hundred pods; the walk ends here on anything stranger
_DEEPEST: Final = 10
_HELPER: Final = re.compile(r"(crio|libpod|docker)-conmon-|^pause$")
_ID: Final = re.compile(r"(?:^|[-:])([0-9a-f]{64})(?:\.scope)?$")
_V1_MEMORY_FILE: Final = "memory.usage_in_bytes"
_V2_MEMORY_FILE: Final = "memory.current"


@dataclass(frozen=True, slots=True)
class _Trees:
    """The tops of the trees with memory, pressure and cpu.stat."""

    version: CgroupVersion
    memory: str
    unified: str
    cpu: str


class HostCgroupSight:
    """Finds the model's container below the mounted tree."""

    kind = SightKind.HOST_CGROUP

    def __init__(self, reader: Reader, name: str, target: TargetSettings) -> None:
        self._reader = reader
        self._name = name
        self._target = target
        self._root = target.host_cgroup_root.rstrip("/")
        self._directory: str | None = None
        self._seen: SeenModel | None = None

    def look(self) -> SeenModel | Unknown:
        """Give the model, the same object as long as its container's cgroup is there."""
        if self._seen is not None and self._directory is not None and self._same(self._directory, self._seen):
            return self._seen
        self._seen = None
        if self._target.pod_uid is None and self._target.container_id is None:
            return Unknown(Why.MISSING, self._root, detail="set target.pod_uid or target.container_id")
        trees = self._trees()
        if isinstance(trees, Unknown):
            return trees
        directory = self._choose(list(self._containers(trees.memory)))
        return directory if isinstance(directory, Unknown) else self._open(directory, trees)

    def drop(self) -> None:
        """Forget what was seen; its owner has closed it."""
        self._seen = None

    def _same(self, directory: str, seen: SeenModel) -> bool:
        found = self._reader.identity(directory)
        own = seen.levels[0].id
        return isinstance(found, Known) and found.value == (own.device, own.inode)

    def _trees(self) -> _Trees | Unknown:
        if isinstance(self._reader.identity(f"{self._root}/cgroup.controllers"), Known):
            return _Trees(CgroupVersion.V2, self._root, self._root, self._root)
        memory = f"{self._root}/memory"
        if isinstance(self._reader.identity(f"{memory}/{_V1_MEMORY_FILE}"), Unknown):
            return Unknown(Why.MISSING, self._root, detail="the host's /sys/fs/cgroup is not mounted here")
        return _Trees(CgroupVersion.V1, memory, f"{self._root}/unified", f"{self._root}/cpu")

    def _containers(self, top: str) -> Iterator[str]:
        """Walk the tree, and give the directories of containers that the settings ask for."""
        uid = self._target.pod_uid
        pod_names = () if uid is None else (uid, uid.replace("-", "_"))
        queue = deque([(top, 0, uid is None)])
        for _ in range(_MOST_GROUPS):
            if not queue:
                return
            directory, depth, in_pod = queue.popleft()
            for child, path in self._children(directory):
                container_id = _ID.search(child)
                if in_pod and container_id is not None and not _HELPER.search(child) and self._asked(container_id[1]):
                    inner = f"{path}/container"  # Podman with its own split of a container's cgroup
                    yield inner if isinstance(self._reader.identity(inner), Known) else path
                elif depth < _DEEPEST:
                    queue.append((path, depth + 1, in_pod or any(f"pod{name}" in child for name in pod_names)))

    def _children(self, directory: str) -> Iterator[tuple[str, str]]:
        names = self._reader.listdir(directory)
        for name in () if isinstance(names, Unknown) else names.value:
            # Kernel files have a dot and a known prefix; asking each one for its type would cost a stat a file.
            if not name.startswith(("memory.", "cgroup.", "cpu.", "io.", "pids.", "hugetlb.", "misc.", "rdma.")):
                yield name, f"{directory}/{name}"

    def _asked(self, container_id: str) -> bool:
        return self._target.container_id is None or container_id.startswith(self._target.container_id)

    def _choose(self, directories: list[str]) -> str | Unknown:
        own = self._reader.identity("/sys/fs/cgroup")
        own_v1 = self._reader.identity("/sys/fs/cgroup/memory")
        others = [d for d in directories if self._reader.identity(d) not in (own, own_v1)]
        if not others:
            wanted = self._target.container_id or f"pod {self._target.pod_uid}"
            return Unknown(Why.MISSING, self._root, detail=f"no container of {wanted}")
        return max(others, key=self._size_bytes)

    def _size_bytes(self, directory: str) -> int:
        for name in (_V2_MEMORY_FILE, _V1_MEMORY_FILE):
            data = self._reader.read(f"{directory}/{name}", 64)
            if isinstance(data, Known) and data.value.strip().isdigit():
                return int(data.value)
        return -1

    def _open(self, directory: str, trees: _Trees) -> SeenModel | Unknown:
        levels = open_levels(self._reader, _chain(directory, trees))
        if not levels or levels[0].depth != 0:
            return Unknown(Why.GONE, directory)
        self._directory = directory
        self._seen = SeenModel(name=self._name, kind=self.kind, levels=levels, hidden_ancestors=False)
        return self._seen


def _chain(directory: str, trees: _Trees) -> Chain:
    names = directory.removeprefix(trees.memory).strip("/").split("/")
    paths = ["/" + "/".join(names[:depth]) for depth in range(len(names), -1, -1)]
    levels = (
        LevelPath(
            name=path,
            version=trees.version,
            scope=locate.scope_of(path),
            memory_dir=_join(trees.memory, path),
            unified_dir=_join(trees.unified, path),
            cpu_dir=_join(trees.cpu, path),
        )
        for path in paths
    )
    return Chain(tuple(levels), hidden_ancestors=False)


def _join(top: str, path: str) -> str:
    return top if path == "/" else top + path
