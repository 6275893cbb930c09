"""What a scenario is, and what can be done to a server in one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from bench.health.stage import Casting, Stage, Subject
from bench.health.starving import starved

_STARVED_SECONDS: Final = 15.0
_STARVED_RATIO: Final = 0.002

Act = Callable[[Stage, Subject], None]


class Lane(StrEnum):
    """What runs beside what: scenarios of one lane follow each other."""

    STILL = "still"  # the server waits for something
    BUSY = "busy"  # it computes or thrashes
    LOAD = "load"  # it loads, most of the time from a slow disk
    EMULATED = "emulated"  # it runs in the machine with cgroup v2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario. `bounds` is empty where the server is well. A judge that is not in `judges` cannot know."""

    name: str
    lane: Lane
    act: Act | None = None  # None: nothing happens, or it happens while the server starts
    casting: Callable[[Mapping[str, Path]], Casting] = lambda _: Casting()
    bounds: Mapping[str, float] = field(default_factory=dict)
    judges: str = "ABC"
    seconds: float = 15.0  # how long a well server is watched
    sidecars_live: bool = True  # through all of it

    @property
    def healthy(self) -> bool:
        """Whether the server is well."""
        return not self.bounds


def order(fault: str) -> Act:
    """Have the server do it."""
    return lambda _, subject: subject.order(fault)


def stop(_: Stage, subject: Subject) -> None:
    """SIGSTOP to the server."""
    os.kill(subject.pid, signal.SIGSTOP)


def freeze(_: Stage, subject: Subject) -> None:
    """Have the kernel put the server to sleep at its limit instead of killing it (cgroup v1)."""
    (subject.group.trees["memory"] / "memory.oom_control").write_text("1")
    subject.order("grow")


def stop_sidecars(stage: Stage, _: Subject) -> None:
    """Stop both sidecars again and again, for longer than the plain rule allows a model."""
    pids = stage.sidecar_pids()
    for _round in range(2):
        for number, seconds in ((signal.SIGSTOP, stage.pace.plain_seconds), (signal.SIGCONT, 1.0)):
            for pid in pids:
                os.kill(pid, number)
            time.sleep(seconds)


def starve_sidecars(stage: Stage, _: Subject) -> None:
    """Give both sidecars a CPU quota of a fraction of what they need."""
    with starved(stage.sidecar_pids(), _STARVED_RATIO):
        time.sleep(_STARVED_SECONDS)


def restarting(fault: str) -> Act:
    """Have the server do it, and kill both sidecars just before the plain rule would fail it."""

    def act(stage: Stage, subject: Subject) -> None:
        subject.order(fault)
        time.sleep(stage.pace.plain_seconds - stage.pace.period_seconds)
        stage.restart_sidecars()

    return act
