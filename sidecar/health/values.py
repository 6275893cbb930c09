"""What the judge takes and answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from guard.model import Operation, Reading, Unknown, Why
from sidecar.sample import Instant, ProbeResult


class State(StrEnum):
    """What the model is doing, as far as the evidence goes."""

    STARTING = "starting"
    LOADING = "loading"
    OK = "ok"
    SLOW = "slow"  # answers, but late, without memory pressure
    RECLAIMING = "reclaiming"  # pressure, and progress
    THRASHING = "thrashing"  # heavy pressure, and still progress
    LIVELOCK = "livelock"  # pressure past the hard cap
    HUNG = "hung"  # no pressure or no progress, and no answer
    DEAD = "dead"
    UNKNOWN = "unknown"


class Pressure(StrEnum):
    """How hard the kernel works to find memory for the model."""

    NONE = "none"
    RECLAIM = "reclaim"
    THRASH = "thrash"


class Progress(StrEnum):
    """Whether the model's own work moves."""

    MOVING = "moving"
    STILL = "still"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Numbers of the judge. The plain-probe numbers mean what they mean in Kubernetes."""

    period_seconds: float = 10.0
    """Between two probes of the model. Kubernetes' default."""
    timeout_seconds: float = 1.0
    """A probe slower than this counts as failed for the plain rule. Kubernetes' default."""
    failure_threshold: int = 3
    """Consecutive failures after which the plain rule fails the model. Kubernetes' default."""
    startup_seconds: float = 600.0
    """Before the first success the model may fail this long. 70 GB at 150 MB/s load in 470 s."""
    credit_seconds: float = 60.0
    """How long pressure may excuse missing answers between two signs of progress of the serving loop."""
    cap_seconds: float = 300.0
    """Nothing extends leniency past this: 'reclaiming' for five minutes without one answer is a livelock."""


NO_PROBE: Final = Unknown(Why.MISSING, "probe", None, "no probe is set for this model")
"""`HealthEvidence.probe` where nobody probes the model; any other Unknown means that no answer is there yet."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """An operation in flight, as its black box says. `key` tells it from the next one of its kind."""

    key: str
    operation: Operation
    progress: Reading[Progress]  # its own words: item, bytes done, time of update


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthEvidence:
    """What is known of one model at one instant. Each reading may be unknown."""

    at: Instant
    alive: Reading[bool]
    probe: Reading[ProbeResult]  # last finished probe
    probe_in_flight_since: Instant | None
    pressure: Reading[Pressure]
    pressure_because: tuple[str, ...]  # the numbers behind it, in words
    kernel_progress: Reading[Progress]  # CPU time, faults served, io, RSS moved since the last tick
    loop_progress: Reading[Progress]  # serving-loop tokens from the guard; Unknown without the guard
    in_flight: tuple[InFlight, ...] = ()  # the one that spoke last first
    heard_late: Instant | None = None  # when a probe that was given up was answered after all
    loop_moved: bool = False  # a token came since the last tick; `loop_progress` looks back over a window
    loop_declared: bool = True  # by the server itself; else its asyncio loop, which may not be what serves
    session: str | None = None  # of the main process: another one is another life
    engines: tuple[str, ...] = ()  # parent sessions of the living children that hold a model
    loaded: tuple[str, ...] = ()  # sessions of the living processes that have loaded something: no mere front ends
    stopped: bool = False  # the main process is stopped by a signal or a debugger (state T or t)
    notes: tuple[str, ...] = ()  # what else is worth saying, in words
    removed: bool = False  # the model's own cgroup is gone: its container has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The answer for one instant. `reasons` are sentences for `?verbose`."""

    at: Instant
    state: State
    live: bool
    ready: bool
    started: bool
    reasons: tuple[str, ...]
    credit_left_seconds: float
    degraded: tuple[str, ...] = ()  # inputs the judge had to do without
