"""Lines, signs and incidents: what the parsers of `explain` pass on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from sidecar.verdict.values import Confidence, EndClass

Field = str | int | float | bool | None | list["Field"] | dict[str, "Field"]
Fields = Mapping[str, Field]
NO_FIELDS: Fields = MappingProxyType({})


class Clock(StrEnum):
    """What a printed time counts. Times of different clocks are never compared."""

    BOOT = "boot"  # seconds since the boot, on the kernel's own clock
    WALL = "wall"  # seconds since the epoch; without a zone it is taken as UTC
    DAY = "day"  # seconds since the first of a month that could not be read


@dataclass(frozen=True, slots=True)
class Stamp:
    """A printed time: as text, and as seconds of its clock."""

    text: str
    clock: Clock
    seconds: float

    def apart(self, other: Stamp | None) -> float | None:
        """Give the seconds between two times, None where they cannot be compared."""
        if other is None or other.clock is not self.clock:
            return None
        return abs(self.seconds - other.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One logical line: its own words without what loggers put before them."""

    file: str
    number: int
    text: str  # the message
    whole: str  # the line as it stands in the file, unwrapped
    stamp: Stamp | None = None
    program: str | None = None  # syslog identifier or its like: "kernel", "earlyoom"
    pid: int | None = None  # of the program
    caller: str = ""  # which of several interleaved writers: host and printk caller
    kernel: bool | None = None  # printed by the kernel: yes, no, or not said
    writer: str = ""  # who wrote it, where a log of several names each: pod and container, service of compose
    part: int = 0  # which object of a list, or writer of a log of several, it is of; 0: of none


def part_keys(part: int) -> frozenset[str]:
    """Make the key that keeps what is said of one object of a list, or by one writer, from what is said of another."""
    return frozenset({f"part:{part}"} if part else ())


class Role(StrEnum):
    """What a sign is to an incident."""

    CAUSE = "cause"  # says why something ended
    END = "end"  # says that and how something ended
    CONSEQUENCE = "consequence"  # follows from a cause that is told elsewhere; no incident by itself
    CONTEXT = "context"  # no end, but worth a line of evidence beside one


@dataclass(frozen=True, slots=True)
class Evidence:
    """One statement with the line that it was read from."""

    supports: bool
    text: str
    file: str
    line: int


def seen(text: str, file: str, line: int) -> Evidence:
    """Make a statement for the class."""
    return Evidence(supports=True, text=text, file=file, line=line)


def against(text: str, file: str, line: int) -> Evidence:
    """Make a statement against the class."""
    return Evidence(supports=False, text=text, file=file, line=line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What one parser recognised. `keys` name whom it is about ("container:<id>", "pod:<uid>", "unit:<name>")."""

    role: Role
    source: str  # which parser, in words: "kernel log", "pod status"
    file: str
    line: int
    end_class: EndClass = EndClass.UNKNOWN
    confidence: Confidence = Confidence.MEDIUM
    subject: str = ""  # what kind of failure, for telling apart those of one class: "torch", "earlyoom"
    summary: str = ""
    stamp: Stamp | None = None
    keys: frozenset[str] = frozenset()
    not_of: frozenset[str] = frozenset()  # keys that it surely is not about: other containers of its pod
    pids: frozenset[int] = frozenset()
    fields: Fields = field(default_factory=lambda: NO_FIELDS)
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One end, or one failure that ends things, put together from all signs of it."""

    end_class: EndClass
    confidence: Confidence
    at: str | None
    summary: str
    fields: Fields
    evidence: tuple[Evidence, ...]
    missing: tuple[str, ...]
    next_steps: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class InputNote:
    """What became of one input: how it was read and which lines were used."""

    file: str
    formats: tuple[str, ...] = ()
    lines: int = 0
    used: tuple[int, ...] = ()  # numbers of lines that gave something, the first ones
    fields: Fields = field(default_factory=lambda: NO_FIELDS)  # readings of cgroup files


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of `explain`."""

    incidents: tuple[Incident, ...]
    inputs: tuple[InputNote, ...]
