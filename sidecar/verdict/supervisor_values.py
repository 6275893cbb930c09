"""What a supervisor says of one end of one container: the Kubernetes API, a Docker or Podman socket, systemd."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SupervisorWordKind(StrEnum):
    """What a supervisor said beside the bare state: why it ended a container, or saw it end."""

    LIVENESS_KILL = "liveness_kill"  # its liveness probe failed too often
    STARTUP_KILL = "startup_kill"  # its startup probe did, or it did not start in time
    WATCHDOG = "watchdog"  # it did not call in time: systemd's WatchdogSec
    EVICTION = "eviction"  # the node ran short of something
    DELETION = "deletion"  # somebody deleted, stopped or replaced it
    NODE_OOM = "node_oom"  # the node was out of memory
    USERSPACE_OOM = "userspace_oom"  # earlyoom, systemd-oomd or its like
    DEVICE = "device"  # a device failed


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorWord:
    """One such word. `text` is a sentence for people, with the numbers and names that it gave."""

    kind: SupervisorWordKind
    text: str
    at_wall_s: float | None = None  # None: it gave no time


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorEnd:
    """One end of one container. None: it does not say. Of `exit_code` and `signal` at most one is set.

    A runtime that writes 137 for a SIGKILL gives `exit_code` 137: which of the two it was it does not know.
    """

    source: str  # for people: "Kubernetes API, pod ns/name, container c"
    exit_code: int | None = None
    signal: int | None = None
    oom_killed: bool | None = None
    reason: str | None = None
    message: str | None = None
    started_wall_s: float | None = None
    finished_wall_s: float | None = None
    restart_count: int | None = None
    words: tuple[SupervisorWord, ...] = ()
