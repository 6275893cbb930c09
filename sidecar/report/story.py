"""What both views show: one end told in order, every curve on one clock.

Times are seconds from the end, negative before it. None is unknown: a gap in a line, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

Point: TypeAlias = "tuple[float, float | None]"


class Unit(StrEnum):
    """What the numbers of a chart are."""

    BYTES = "bytes"
    SHARE = "share of time"
    PER_SECOND = "per second"
    SECONDS = "seconds"


class Shape(StrEnum):
    """How a curve is drawn."""

    AREA = "area"  # stacked on the areas before it
    LINE = "line"
    LIMIT = "limit"
    DOTS = "dots"
    FAILED = "failed"  # dots of what went wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line or band. `style` names its colour in the style sheet."""

    label: str
    style: str
    shape: Shape
    points: tuple[Point, ...]

    def last_known(self, until_s: float) -> float | None:
        """Give the last known value up to a time."""
        return next((value for at, value in reversed(self.points) if at <= until_s and value is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves of one unit. `where`: the cgroup that it is about. `notes`: what was not known, and how to read it."""

    title: str
    where: str | None = None
    unit: Unit
    curves: tuple[Curve, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time with a name, and in `text` what is to be said of it."""

    label: str
    style: str
    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What went on, as stretches of time."""

    title: str
    spans: tuple[Span, ...]


class Weight(StrEnum):
    """How much an event matters to a reader who looks for the cause."""

    BAD = "bad"
    WARNING = "warning"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event. `number` is its mark on the timeline."""

    number: int
    at_s: float
    kind: str
    text: str
    weight: Weight


@dataclass(frozen=True, slots=True)
class Statement:
    """One piece of evidence and where it was read."""

    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number that matters, with what it is and what to compare it with."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFacts:
    """One level of the cgroup chain just before the end, in words."""

    name: str
    current: str
    max: str
    high: str
    kills: str
    culprit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """A verdict as it was given once."""

    at: str
    verdict: str
    summary: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer: what ended it, whose limit or doing it was, what to change."""

    end_class: str
    tone: Weight
    headline: str
    summary: str
    confidence: str
    confidence_words: str
    whose: str
    group: str | None  # the cgroup whose limit it was
    steps: tuple[str, ...]
    supporting: tuple[Statement, ...]
    against: tuple[Statement, ...]
    missing: tuple[str, ...]
    history: tuple[Opinion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One end. `start_s` and `end_s` bound the timeline; `unseen` says what the record does not hold."""

    id: str
    model: str
    at: str
    verdict: Verdict
    facts: tuple[Fact, ...]
    start_s: float
    end_s: float
    quiet_s: float  # the last reading before the end, and before it was killed; single values are of this moment
    charts: tuple[Chart, ...]
    lanes: tuple[Lane, ...]
    happenings: tuple[Happening, ...]
    levels: tuple[LevelFacts, ...]
    unseen: tuple[str, ...]
    known: tuple[Fact, ...]
    surroundings: tuple[Fact, ...]
