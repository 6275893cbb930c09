"""How long it takes from the death of a model to the verdict in `/incidents`, for three ways to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from time import monotonic
from typing import Final

from bench.sidecar import loads
from bench.sidecar.figures import Figure, Goal, Part, median
from bench.sidecar.stage import Stage
from tests.lab.kit.cgroups import Limits
from tests.lab.kit.wait import until

MIB: Final = 1 << 20
LIMIT: Final = Limits(memory_max_bytes=80 * MIB)
_WITHIN = Goal(at_most=1.0)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to end: the load, what is done to it once it is seen, and the class that the verdict must name."""

    name: str
    load: Sequence[str]
    strike: Callable[[int], None]
    end_class: str


WAYS: Final = (
    Way("sigkill", loads.command("work"), lambda pid: os.kill(pid, signal.SIGKILL), "external_kill"),
    Way("oom", loads.command("grow", "60"), loads.start, "cgroup_oom"),
    Way("exit_3", loads.command("leave", "3"), loads.start, "application_exit"),
)


@dataclass(frozen=True, slots=True)
class Death:
    """Seconds from the death to the verdict: as the sidecar says, and until anybody could read it."""

    way: Way
    said_seconds: float
    seen_seconds: float
    right: bool


def measure(kills: int) -> Iterator[Part]:
    """End `kills` models, one after another."""
    with Stage() as stage:
        deaths = [_one(stage, way, number) for number, way in enumerate(islice(cycle(WAYS), kills))]
    seen = [death.seen_seconds for death in deaths]
    said = [death.said_seconds for death in deaths]
    yield Part(
        "deaths",
        f"From death to verdict, {len(deaths)} ends",
        (
            Figure(
                name="seen_in_incidents_max",
                value=max(seen),
                unit="s",
                goal=_WITHIN,
                beside={"median": median(seen)}
                | {way.name: median([one.seen_seconds for one in deaths if one.way is way]) for way in WAYS},
            ),
            Figure(
                name="verdict_after_seconds_max",
                value=max(said),
                unit="s",
                goal=_WITHIN,
                beside={"median": median(said)},
            ),
            Figure(
                name="classified_right",
                value=sum(death.right for death in deaths),
                unit=f"of {len(deaths)}",
                goal=Goal(at_least=len(deaths)),
            ),
        ),
    )


def _one(stage: Stage, way: Way, number: int) -> Death:
    with stage.watched(f"{way.name}-{number}", way.load, LIMIT) as model:
        way.strike(model.pid)
        died = model.wait_end(60)
        incident = until(lambda: next(iter(stage.incidents(model)), None), 30, "a verdict", pause_seconds=0.01)
        return Death(way, incident["verdict_after_seconds"], monotonic() - died, incident["class"] == way.end_class)
