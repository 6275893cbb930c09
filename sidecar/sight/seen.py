"""What a way of seeing yields: open files of the model's levels and processes. Holders of descriptors, no decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from guard.kernel.reader import KeptFile
from guard.kernel.values import CgroupVersion
from guard.model import LifeId
from sidecar.sample import LevelId, SightKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLevel:
    """One level, own is depth 0. `files` by kernel file name ("memory.current"); an absent name could not be opened."""

    id: LevelId
    name: str
    depth: int
    version: CgroupVersion
    files: Mapping[str, KeptFile]


@dataclass(slots=True, kw_only=True)
class SeenProcess:
    """One process. `files` by name below /proc/PID ("status", "stat", "io", "statm")."""

    life: LifeId
    parent_session: str | None
    command: str
    uid: int | None
    pidfd: int | None
    files: Mapping[str, KeptFile]
    box: KeptFile | None
    has_runner: bool = False  # whether its parent, `oomguard run`, has handed it over, and will tell of its end
    wait_status_from_runner: int | None = None  # raw wait(2) status, once the runner has sent it
    sigterm_from_runner_wall_s: float | None = None  # when the runner first passed a SIGTERM on, as it told then
    aliases: set[str] = field(default_factory=set)  # other sessions that it goes by: its runner's, those before exec


@dataclass(slots=True, kw_only=True)
class SeenModel:
    """One model: the processes of one name in one own-level cgroup. The first process is the main one."""

    name: str
    kind: SightKind
    levels: tuple[SeenLevel, ...]
    hidden_ancestors: bool
    processes: list[SeenProcess] = field(default_factory=list)
