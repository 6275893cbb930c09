"""The record's JSON as typed values. Anyone in the pod may have written it: what does not fit is left out.

Absent is unknown. Sizes in bytes, stalls in microseconds since the group began, times in seconds (docs/record.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from sidecar.verdict.values import Confidence, EndClass

Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Number: TypeAlias = Annotated[float, Meta(ge=-1e15, le=1e15)]
Limit: TypeAlias = Count | Literal["unlimited"]
Key: TypeAlias = tuple[str, str, str | None]

T = TypeVar("T")


class Stall(Struct, frozen=True):
    """Total stall times of one pressure file."""

    some_us: Count | None = None
    full_us: Count | None = None


class Level(Struct, frozen=True):
    """One cgroup of the model's chain, at one tick."""

    name: str
    current: Count | None = None
    max: Limit | None = None
    high: Limit | None = None
    version: int | None = None
    unreclaimable: Count | None = None
    oom_kill: Count | None = None  # v1; v2 has it in `events`
    events: Mapping[str, Count] = {}
    stat: Mapping[str, Count] = {}
    memory_psi: Stall = Stall()
    io_psi: Stall = Stall()

    @property
    def killed(self) -> int | None:
        """OOM kills that it counted."""
        return self.events.get("oom_kill", self.oom_kill)


class Node(Struct, frozen=True, rename={"available": "MemAvailable", "total": "MemTotal"}):
    """The node, at one tick."""

    total: Count | None = None
    available: Count | None = None
    memory_psi: Stall = Stall()
    io_psi: Stall = Stall()


class Gpu(Struct, frozen=True):
    """One card, at one tick."""

    index: Count
    used: Count | None = None
    free: Count | None = None
    load: Number | None = None
    lost: bool = False


class Probe(Struct, frozen=True):
    """The last finished probe of the model."""

    started_monotonic_s: Number
    latency_seconds: Number
    outcome: str


class Operation(Struct, frozen=True):
    """Work in flight, as the guard marked it."""

    kind: str
    label: str
    file: str | None = None
    item: str | None = None
    bytes_done: Count | None = None
    bytes_expected: Count | None = None

    @property
    def key(self) -> Key:
        """What tells it from other work."""
        return self.kind, self.label, self.file

    @property
    def name(self) -> str:
        """What people call it."""
        return self.file.rpartition("/")[2] if self.file else self.label


class Process(Struct, frozen=True):
    """One process of the model."""

    pid: int
    main: bool = False


class Row(Struct, frozen=True):
    """One tick of one model."""

    monotonic_s: Number
    sight: str | None = None
    hidden_ancestors: bool = False
    levels: tuple[Level, ...] = ()  # own first
    node: Node = Node()
    processes: tuple[Process, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    probe: Probe | None = None
    operations: tuple[Operation, ...] = ()
    state: str | None = None

    def kills(self) -> int:
        """Give the OOM kills that the own level has counted; 0 where it counts none."""
        return (self.levels[0].killed or 0) if self.levels else 0

    def level(self, name: str) -> Level | None:
        """Give the level of that name."""
        return next((one for one in self.levels if one.name == name), None)

    def operation(self, key: Key) -> Operation | None:
        """Give the work with that key, where it is in flight."""
        return next((one for one in self.operations if one.key == key), None)


class Life(Struct, frozen=True):
    """Which process it was."""

    boot_id: str
    pid: int
    session: str


class Said(Struct, frozen=True, rename={"supports": "for"}):
    """One piece of evidence."""

    supports: bool
    text: str
    source: str


class Opinion(Struct, frozen=True, rename={"end_class": "class"}):
    """A verdict that was given at some time, before or by the last refinement."""

    at: str | float
    end_class: str
    confidence: str
    summary: str
    because: str = ""


class Document(Struct, frozen=True, rename={"end_class": "class", "next_steps": "next"}):
    """One end and its verdict, as in /incidents (docs/http.md)."""

    id: str
    model: str
    end_class: EndClass
    confidence: Confidence
    at: str
    wall_s: Number
    monotonic_s: Number
    summary: str
    main: bool
    life: Life
    level: str | None = None
    verdict_after_seconds: Number | None = None
    fields: Mapping[str, Any] = {}
    evidence: tuple[Said, ...] = ()
    missing: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    history: tuple[Opinion, ...] = ()

    def count(self, name: str) -> int | None:
        """Give a field that is a count; None where it is not known."""
        value = self.fields.get(name)
        return value if type(value) is int and value >= 0 else None

    def word(self, name: str) -> str | None:
        """Give a field that is a text."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else None


def row(stored: Mapping[str, Any]) -> Row | None:
    """Read one row; None where it is not in our shape."""
    return _read(stored, Row)


def document(stored: Mapping[str, Any]) -> Document | None:
    """Read one incident; None where it is not in our shape."""
    return _read(stored, Document)


def _read(stored: Mapping[str, Any], shape: type[T]) -> T | None:
    try:
        return msgspec.convert(stored, shape)
    except msgspec.ValidationError:
        return None
