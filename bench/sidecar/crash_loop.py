"""What the sidecar's memory does while its model ends and begins without a pause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.sidecar import loads
from bench.sidecar.figures import Figure, Goal, Part
from bench.sidecar.stage import Stage
from bench.sidecar.usage import usage
from tests.lab.kit.cgroups import Limits
from tests.lab.kit.wait import until

MIB: Final = 1 << 20
LIMIT: Final = Limits(memory_max_bytes=80 * MIB)
_NAME: Final = "crash-loop"
_SMALL: Final = Goal(at_most=52.0)
"""The 48 MiB of a sidecar whose model stays up, and what the ends themselves keep: histories, evidence, events."""
_FLAT: Final = Goal(at_most=2.0)


def measure(lives: int) -> Iterator[Part]:
    """Run so many lives of one model, each in a new cgroup and each with its verdict, under one sidecar."""
    with Stage() as stage:
        pid = stage.sidecar_pid()
        sizes = [usage(pid).rss_bytes / MIB]
        told: set[str] = set()
        for _ in range(lives):
            _live(stage, told)
            sizes.append(usage(pid).rss_bytes / MIB)
    middle = sizes[lives // 2]
    yield Part(
        "crash_loop",
        f"{lives} lives of one model, one behind another",
        (
            Figure(name="rss_max", value=max(sizes), unit="MiB", goal=_SMALL, beside={"start": sizes[0]}),
            Figure(
                name="rss_growth_in_second_half",
                value=sizes[-1] - middle,
                unit="MiB",
                goal=_FLAT,
                beside={"middle": middle},
            ),
        ),
    )


def _live(stage: Stage, told: set[str]) -> None:
    """Run one life until its verdict can be read; `told` has the verdicts of the lives before, and takes this one."""
    with stage.watched(_NAME, loads.command("leave", "3"), LIMIT) as model:
        loads.start(model.pid)
        model.wait_end(60)
        told |= until(lambda: {one["id"] for one in stage.incidents(model)} - told, 60, "a verdict")
