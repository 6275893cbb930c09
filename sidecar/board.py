"""The board: the latest word on everything, from which every output answers. Written by the tick, read by handlers.

Handlers never do IO and never wait for the tick: they read one attribute here (assignments are atomic).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from guard.model import Known, LifeId, Reading, Unknown, Why
from sidecar.detect.values import Answer
from sidecar.health.values import Judgement
from sidecar.sample import Instant, ProbeResult, Sample
from sidecar.supervisors.values import Container
from sidecar.verdict.values import Confidence, EndClass, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened. `kind` is a stable snake_case name; `fields` are JSON scalars. `id` grows by one."""

    id: int
    at: Instant
    model: str
    kind: str  # state_changed, warning, limit_changed, child_ended, model_ended, probe_failed, degraded, ...
    text: str
    fields: Mapping[str, str | int | float | bool | None] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Packed:
    """A value that nothing is decided by any more, as `sidecar.outputs.shape.pack` packs it; it is only shown.

    A sample takes some 10 KiB a level as a value, and all of it about 2 KiB so.
    """

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One verdict on an end, among those that followed one another. `because`: what had come to be known."""

    at: Instant
    end_class: EndClass
    confidence: Confidence
    summary: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An end of a model (or of one of its children, `main` false) and why. `id` is stable across sidecar restarts.

    `verdict` is the last one; `history` has all of them, oldest first, where there was more than one.
    """

    id: str
    at: Instant
    model: str
    life: LifeId
    main: bool
    verdict: Verdict
    verdict_after_seconds: float  # from the end to the first verdict
    last_sample: Packed | None = None
    levels_after: Packed | None = None
    history: tuple[Judged, ...] = ()
    counted_as: EndClass | None = None  # the class that the counter of ends has it under; None: not counted (yet)


def kept(incidents: Iterable[Incident], most: int) -> tuple[Incident, ...]:
    """Give the first `most` ends of main processes and as many of children, in order: no worker pushes a model out."""
    left = {True: most, False: most}
    some = []
    for incident in incidents:
        if left[incident.main] > 0:
            left[incident.main] -= 1
            some.append(incident)
    return tuple(some)


def replaced(incidents: tuple[Incident, ...], newer: Incident) -> tuple[Incident, ...]:
    """Put what is known now of an end in the place of what was, if it is among them."""
    return tuple(newer if one.id == newer.id else one for one in incidents)


_NOT_YET: Final = Unknown(Why.NOT_SAMPLED, "board")

PROBE_BOUNDS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the latency buckets: 5 ms for a cached answer up to 30 s, past every usual probe timeout."""


@dataclass(frozen=True, slots=True)
class ProbeTally:
    """How every finished probe of one model went, as a histogram. `buckets` are not cumulative; the last is +Inf."""

    buckets: tuple[int, ...] = (0,) * (len(PROBE_BOUNDS_SECONDS) + 1)
    sum_seconds: float = 0.0
    outcomes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # ProbeOutcome name to count

    def add(self, probe: ProbeResult) -> ProbeTally:
        """Count one finished probe."""
        place = bisect_left(PROBE_BOUNDS_SECONDS, probe.latency_seconds)
        outcome = probe.outcome.value
        return ProbeTally(
            buckets=tuple(count + (index == place) for index, count in enumerate(self.buckets)),
            sum_seconds=self.sum_seconds + probe.latency_seconds,
            outcomes=MappingProxyType({**self.outcomes, outcome: self.outcomes.get(outcome, 0) + 1}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """The latest word on one model."""

    name: str
    sample: Sample | None
    judgement: Judgement
    answers: tuple[Answer, ...]
    ends: Mapping[str, int]  # EndClass name to count, survives sidecar restarts
    incidents: tuple[Incident, ...]  # newest first, bounded
    probes: ProbeTally = field(default_factory=ProbeTally)  # since the sidecar started
    warnings: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # detector name to times it fired
    time_to_limit_seconds: Reading[float] = _NOT_YET  # inf: nothing grows
    supervised: tuple[Container, ...] = ()  # its container, as each supervisor sees it that is asked
    history: bool = False  # it ended and is not missed, so the plain health pages leave it out


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnView:
    """The sidecar about itself. `degraded`: what does not work now, in words."""

    started: Instant
    last_tick: Instant | None
    tick_seconds: float  # the pause between ticks in force
    ticks: int
    degraded: tuple[str, ...]
    rss_bytes: Reading[int] = _NOT_YET
    cpu_seconds: Reading[float] = _NOT_YET


@dataclass(slots=True)
class Board:
    """See the module's docstring. Every field is replaced whole, never changed in place.

    `past_ends` and `past_incidents` come from the record at start: what was known before this sidecar began. A model
    in `models` speaks for itself (its `ends` start from the record's), the others are still counted and listed.
    """

    own: OwnView
    models: Mapping[str, ModelView] = field(default_factory=dict)
    events: tuple[Event, ...] = ()  # newest last, bounded
    past_ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # model to EndClass name to count
    past_incidents: tuple[Incident, ...] = ()  # newest first, bounded
    incidents_recorded: Reading[int] = _NOT_YET  # how many the record holds

    def incidents(self) -> list[Incident]:
        """Give all ends in memory, newest first, each once."""
        every = [one for view in self.models.values() for one in view.incidents]
        unique = {one.id: one for one in (*self.past_incidents, *every)}
        return sorted(unique.values(), key=lambda one: one.at.wall_s, reverse=True)

    def more_in_record(self, listed: int) -> int | None:
        """Say how many ends the record holds beside so many that are listed; None where it does not say."""
        recorded = self.incidents_recorded
        return max(0, recorded.value - listed) if isinstance(recorded, Known) else None
