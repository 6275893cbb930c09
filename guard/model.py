"""Values that both halves share.

House rules
    * Unknown is never zero. A value read from outside is a `Reading`: `Known(value)` or `Unknown(why, where)`.
    * Unlimited, unknown and a number are three different things: `Reading[Limit]`, `Limit = int | Unlimited`.
    * Units are in names: `_bytes`, `_us`, `_seconds`, `_ratio`. Times named `_monotonic_s` are CLOCK_MONOTONIC,
      which every process of a node shares (time namespaces apart); `_wall_s` is seconds since the Unix epoch.
    * Everything here is frozen and free of IO and clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, Generic, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Why(StrEnum):
    """Why a value is not known."""

    MISSING = "missing"  # ENOENT: no such file, or no such line in it
    DENIED = "denied"  # EACCES, EPERM
    GONE = "gone"  # ENODEV after the cgroup was removed, ESRCH after the process was reaped
    UNSUPPORTED = "unsupported"  # EOPNOTSUPP (PSI off), or this kernel or cgroup version has no such file
    MALFORMED = "malformed"  # read, but not in a shape we know
    FAILED = "failed"  # any other errno; see `Unknown.errno`
    HIDDEN = "hidden"  # a namespace or missing mount hides it
    NOT_SAMPLED = "not_sampled"  # nobody has read it yet, or it needs two samples


@dataclass(frozen=True, slots=True)
class Known(Generic[T_co]):
    """A value that was read."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that could not be read, why, and from where (a path or a name)."""

    why: Why
    where: str
    errno: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        """Say it in one line, for `missing` lists and the health page."""
        extra = f" ({self.detail})" if self.detail else ""
        return f"{self.where}: {self.why.value}{extra}"


Reading: TypeAlias = Known[T_co] | Unknown


class Unlimited(Enum):
    """The kernel enforces no limit here."""

    UNLIMITED = "unlimited"


UNLIMITED: Final = Unlimited.UNLIMITED
Limit: TypeAlias = int | Unlimited


@dataclass(frozen=True, slots=True)
class LifeId:
    """One life of one process, never confused with the next one in the same container.

    Pids and paths are recycled; this is not. `start_ticks` is field 22 of /proc/PID/stat (clock ticks since boot).
    `session` is random, made once a process (again after fork).
    """

    boot_id: str
    pid: int
    start_ticks: int
    session: str


class OperationKind(StrEnum):
    """What kind of long work is in flight."""

    LOAD = "load"  # reading a checkpoint
    MOVE = "move"  # Module.to, .cuda
    BUSY = "busy"  # declared by the host: compile, warm-up, graph capture


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Work in flight on one thread, as the black box holds it. `None` means not known, never zero."""

    kind: OperationKind
    label: str  # what does it, e.g. "safetensors.torch.load_file"
    file: str | None = None
    item: str | None = None  # the tensor or shard in flight
    bytes_done: int | None = None
    bytes_expected: int | None = None
    started_monotonic_s: float
    updated_monotonic_s: float
    at_most_seconds: float | None = None  # the bound the host gave it
    thread: str = ""
    done: bool = False  # finished; kept as the last thing that thread did


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A named progress counter of the server: loop ticks, requests, tokens."""

    name: str
    count: int
    at_monotonic_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure the guard saw before the process ended (or that the host survived).

    `fatal` is false for one that was caught and reported: such a failure must not be blamed for a later exit.
    """

    at_wall_s: float
    at_monotonic_s: float
    kind: str  # "exception", "thread_exception", "asyncio_exception", "memory_error", ...
    exception: str  # qualified type name
    message: str  # cut to fit
    fatal: bool
    thread: str = ""
    stack: tuple[str, ...] = ()  # innermost last, "file:line function"
    fields: Mapping[str, str | int | float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class ExitMark:
    """The interpreter reached its orderly exit. `status` is None where the guard could not know it."""

    at_wall_s: float
    at_monotonic_s: float
    status: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxState:
    """Everything one black box says, already checked; a damaged part is absent."""

    life: LifeId
    parent_session: str | None  # the session of the process that forked or spawned this one
    release: str  # of the guard that wrote it
    created_wall_s: float
    command: str
    name: str | None = None  # of the model; None in a box of a release that did not write it
    operations: tuple[Operation, ...] = ()
    beats: tuple[Beat, ...] = ()
    failures: tuple[Failure, ...] = ()
    sigterm_wall_s: float | None = None
    exit_mark: ExitMark | None = None
