"""A shared PID namespace: the model's process is visible, and /proc/PID/root leads to its cgroup mount.

Kubernetes `shareProcessNamespace: true`, Docker and Podman `--pid=container:NAME`. Reaching through /proc/PID/root
takes the same uid (with no more capabilities on the other side) or CAP_SYS_PTRACE; root alone is refused [measured on
podman with runc and crun, kernels 6.12 and 6.18].

Which container is the model: the one with the process that the settings name; else the first one that has a process
with torch mapped; else the one whose first process is the oldest and no pause process. Its main process is its oldest
one, whose end is the container's. The choice stays until that process is gone.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Final

from guard.kernel import identity, locate, procfs
from guard.kernel.reader import KeptFile, Reader
from guard.model import LifeId, Unknown, Why
from sidecar.sample import SightKind
from sidecar.sight.levels import open_levels
from sidecar.sight.seen import SeenModel, SeenProcess

_PAUSE_NAMES: Final = frozenset({"pause", "catatonit"})  # Kubernetes' and Podman's holders of a pod's namespaces
_MAPS_LIMIT: Final = 8 << 20  # bytes; a torch server has some thousand mappings of about 100 bytes
_MOST_PROCESSES: Final = 4096


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One foreign process."""

    pid: int
    comm: str
    command: str
    start_ticks: int
    cgroup: bytes

    @property
    def program(self) -> str:
        """The base name of what was started."""
        return self.command.partition(" ")[0].rpartition("/")[2]


class SharedPidSight:
    """Finds the model among the processes that /proc shows."""

    kind = SightKind.SHARED_PID

    def __init__(self, reader: Reader, name: str, process: str | None) -> None:
        self._reader = reader
        self._name = name
        self._process = process
        self._seen: SeenModel | None = None

    def look(self) -> SeenModel | Unknown:
        """Give the model, the same object as long as its main process lives."""
        if self._seen is not None and self._still_there(self._seen.processes[0].life):
            return self._seen
        self._seen = None
        candidates = self._candidates()
        if isinstance(candidates, Unknown):
            return candidates
        main = self._choose(candidates)
        return main if isinstance(main, Unknown) else self._open(main)

    def drop(self) -> None:
        """Forget what was seen; its owner has closed it."""
        self._seen = None

    def _still_there(self, life: LifeId) -> bool:
        ticks = identity.start_ticks(self._reader, life.pid)
        return not isinstance(ticks, Unknown) and ticks.value == life.start_ticks

    def _candidates(self) -> list[_Candidate] | Unknown:
        names = self._reader.listdir("/proc")
        own = self._reader.read("/proc/self/cgroup")
        if isinstance(names, Unknown):
            return names
        if isinstance(own, Unknown):
            return own
        pids = sorted(int(name) for name in names.value if name.isascii() and name.isdecimal())[:_MOST_PROCESSES]
        found = [c for pid in pids if (c := self._candidate(pid)) is not None and c.cgroup != own.value]
        if self._process is None and _comm(self._reader, 2) == "kthreadd":
            return Unknown(
                Why.HIDDEN,
                "/proc",
                detail="this is the host's PID namespace: name the model's process (target.process)",
            )
        return found

    def _candidate(self, pid: int) -> _Candidate | None:
        stat, cgroup = self._reader.read(f"/proc/{pid}/stat"), self._reader.read(f"/proc/{pid}/cgroup")
        command = self._reader.read(f"/proc/{pid}/cmdline")
        if isinstance(stat, Unknown) or isinstance(cgroup, Unknown) or isinstance(command, Unknown):
            return None
        parsed = procfs.parse_stat(stat.value, "stat")
        if isinstance(parsed, Unknown) or not command.value:  # a kernel thread or a zombie has no command line
            return None
        words = command.value.decode("utf-8", "replace").split("\0")
        value = parsed.value
        return _Candidate(pid, value.comm, " ".join(words).strip(), value.starttime_ticks, cgroup.value)

    def _choose(self, candidates: list[_Candidate]) -> _Candidate | Unknown:
        oldest_first = sorted(candidates, key=lambda c: (c.start_ticks, c.pid))
        if self._process is not None:
            named = [c for c in oldest_first if self._process in {c.comm, c.program}]
            if not named:
                return Unknown(
                    Why.MISSING, "/proc", detail=f"no process of another container is called {self._process}"
                )
            return named[0]
        servers = [c for c in oldest_first if c.comm not in _PAUSE_NAMES]
        if not servers:
            return Unknown(Why.MISSING, "/proc", detail="no process of another container is visible")
        chosen = next((c for c in servers if self._has_torch(c.pid)), servers[0])
        return next(c for c in servers if c.cgroup == chosen.cgroup)

    def _has_torch(self, pid: int) -> bool:
        maps = self._reader.read(f"/proc/{pid}/maps", _MAPS_LIMIT)
        return not isinstance(maps, Unknown) and b"/libtorch" in maps.value

    def _open(self, main: _Candidate) -> SeenModel | Unknown:
        chain = locate.locate(self._reader, main.pid)
        if isinstance(chain, Unknown):
            return chain
        boot_id = identity.boot_id(self._reader)
        if isinstance(boot_id, Unknown):
            return boot_id
        try:
            pidfd = os.pidfd_open(main.pid)
        except OSError:  # it ended meanwhile (ESRCH), or seccomp forbids pidfds (EPERM); /proc tells of its end as well
            pidfd = None
        files = {name: self._reader.keep(f"/proc/{main.pid}/{name}") for name in ("status", "stat", "io")}
        process = SeenProcess(
            life=life_without_guard(boot_id.value, main.pid, main.start_ticks),
            parent_session=None,
            command=main.command,
            uid=None,
            pidfd=pidfd,
            files={name: file for name, file in files.items() if isinstance(file, KeptFile)},
            box=None,
        )
        self._seen = SeenModel(
            name=self._name,
            kind=self.kind,
            levels=open_levels(self._reader, chain.value),
            hidden_ancestors=chain.value.hidden_ancestors,
            processes=[process],
        )
        return self._seen


def life_without_guard(boot_id: str, pid: int, start_ticks: int) -> LifeId:
    """Make the identity of a process that has no session of its own: the same after a restart of the sidecar."""
    digest = hashlib.sha256(f"{boot_id}/{pid}/{start_ticks}".encode()).hexdigest()
    return LifeId(boot_id, pid, start_ticks, digest[:32])


def _comm(reader: Reader, pid: int) -> str | None:
    comm = reader.read(f"/proc/{pid}/comm")
    return None if isinstance(comm, Unknown) else comm.value.decode("utf-8", "replace").strip()
