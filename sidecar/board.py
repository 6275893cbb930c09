"""The board: the latest word on everything, from which every output answers. Written by the tick, read by handlers.

Handlers never do IO and never wait for the tick: they read one attribute here (assignments are atomic).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from guard.model import LifeId
from sidecar.detect.values import Answer
from sidecar.health.values import Judgement
from sidecar.sample import Instant, LevelSample, Sample
from sidecar.verdict.values import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened. `kind` is a stable snake_case name; `fields` are JSON scalars. `id` grows by one."""

    id: int
    at: Instant
    model: str
    kind: str  # state_changed, warning, limit_changed, child_ended, model_ended, probe_failed, degraded, ...
    text: str
    fields: Mapping[str, str | int | float | bool | None] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An end of a model (or of one of its children, `main` false) and why. `id` is stable across sidecar restarts."""

    id: str
    at: Instant
    model: str
    life: LifeId
    main: bool
    verdict: Verdict
    verdict_after_seconds: float  # from the end to the first verdict
    last_sample: Sample | None
    levels_after: tuple[LevelSample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """The latest word on one model."""

    name: str
    sample: Sample | None
    judgement: Judgement
    answers: tuple[Answer, ...]
    ends: Mapping[str, int]  # EndClass name to count, survives sidecar restarts
    incidents: tuple[Incident, ...]  # newest first, bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnView:
    """The sidecar about itself. `degraded`: what does not work now, in words."""

    started: Instant
    last_tick: Instant | None
    tick_seconds: float  # the pause between ticks in force
    ticks: int
    degraded: tuple[str, ...]


@dataclass(slots=True)
class Board:
    """See the module's docstring. `models` and `own` are replaced whole, never changed in place."""

    own: OwnView
    models: Mapping[str, ModelView] = field(default_factory=dict)
    events: tuple[Event, ...] = ()  # newest last, bounded
