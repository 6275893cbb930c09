"""What it costs to watch: one model and eight at 10 Hz beside bare loops, and one every day."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from bench.demo.probes import request
from bench.sidecar import bare, loads
from bench.sidecar.figures import Figure, Goal, Part
from bench.sidecar.stage import Model, Stage
from bench.sidecar.usage import Usage, usage
from tests.lab.kit.cgroups import Limits
from tests.lab.kit.places import CHECKOUT

MIB: Final = 1 << 20
PERIOD_SECONDS: Final = 0.1
NEAR: Final = Limits(memory_max_bytes=96 * MIB)
ROOMY: Final = Limits(memory_max_bytes=8192 * MIB)
"""As most servers have it, most of the time: then a tick a second is enough."""
WARM_UP_SECONDS: Final = 15.0
"""Longer than the longest window, so that every buffer of the sidecar has been filled once."""

VISITS: Final = ((("/livez", "/readyz"), 10.0), (("/metrics",), 15.0))
"""Pages and periods in seconds: the defaults of Kubernetes' probes, and a usual scrape interval."""

_CPU = Goal(at_most=0.5)
_RSS = Goal(at_most=48.0)
_RATIO = Goal(at_most=2.0)
_ALIKE = Goal(at_least=0.9, at_most=1.1)
_FLAT = Goal(at_most=1.0)


@dataclass(frozen=True, slots=True)
class Measured:
    """A process that was watched: its usage at the start, in the middle and at the end."""

    start: Usage
    middle: Usage
    end: Usage

    @property
    def cpu_share(self) -> float:
        """Share of one core over the whole time."""
        return self.end.cpu_share_since(self.start)

    @property
    def read_calls_per_second(self) -> float:
        """Its read calls."""
        return self.end.read_calls_per_second_since(self.start)

    @property
    def read_kib_per_second(self) -> float:
        """What they gave it."""
        return self.end.read_bytes_per_second_since(self.start) / 1024


def measure(minutes: float) -> Iterator[Part]:
    """Watch all of it at the same time; the peers run beside, so that both see the same machine."""
    with contextlib.ExitStack() as open_until_end:
        fixed = str(PERIOD_SECONDS)
        stages = {
            "one": (open_until_end.enter_context(Stage(tick_fixed_seconds=fixed)), 1),
            "eight": (open_until_end.enter_context(Stage(tick_fixed_seconds=fixed)), 8),
            "everyday": (open_until_end.enter_context(Stage()), 1),
        }
        limits = {"one": NEAR, "eight": NEAR, "everyday": ROOMY}
        models = {
            name: [
                open_until_end.enter_context(stage.watched(f"model-{number}", loads.command("work"), limits[name]))
                for number in range(count)
            ]
            for name, (stage, count) in stages.items()
        }
        pids = {name: stage.sidecar_pid() for name, (stage, _) in stages.items()}
        for name, what in product(("one", "eight"), (bare.SAME, bare.ALL)):
            pids[f"{name} {what}"] = open_until_end.enter_context(_bare(what, models[name])).pid
        pids["runner"] = models["one"][0].runner.pid
        open_until_end.enter_context(_visited(stages["everyday"][0]))
        measured = _watch(pids, minutes * 60)
    yield _part("one", 1, measured)
    yield _part("eight", 8, measured)
    yield _everyday_part(measured["everyday"], measured["runner"])


@contextlib.contextmanager
def _bare(what: str, models: list[Model]) -> Iterator[subprocess.Popen[bytes]]:
    pids = [str(model.pid) for model in models]
    command = [sys.executable, "-m", "bench.sidecar.bare", str(PERIOD_SECONDS), what, *pids]
    with subprocess.Popen(command, cwd=CHECKOUT) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def _visited(stage: Stage) -> Iterator[None]:
    """Ask as a kubelet and a Prometheus do by default."""
    over = threading.Event()

    def visit(pages: Sequence[str], period_seconds: float) -> None:
        while not over.wait(period_seconds):
            for page in pages:
                request(stage.port, "GET", page, 5.0)

    visitors = [threading.Thread(target=visit, args=visit_of) for visit_of in VISITS]
    for visitor in visitors:
        visitor.start()
    try:
        yield
    finally:
        over.set()
        for visitor in visitors:
            visitor.join()


def _watch(pids: dict[str, int], seconds: float) -> dict[str, Measured]:
    time.sleep(min(WARM_UP_SECONDS, seconds))
    start = {name: usage(pid) for name, pid in pids.items()}
    time.sleep(seconds / 2)
    middle = {name: usage(pid) for name, pid in pids.items()}
    time.sleep(seconds / 2)
    return {name: Measured(start[name], middle[name], usage(pid)) for name, pid in pids.items()}


def _part(name: str, models: int, measured: dict[str, Measured]) -> Part:
    sidecar, same, everything = (measured[key] for key in (name, f"{name} {bare.SAME}", f"{name} {bare.ALL}"))
    figures = (
        _over("cpu_over_bare_loop", sidecar.cpu_share, everything.cpu_share, _RATIO),
        _over("cpu_over_its_own_reads_alone", sidecar.cpu_share, same.cpu_share, None),
        _over("read_calls_over_its_own_reads", sidecar.read_calls_per_second, same.read_calls_per_second, _ALIKE),
        # The sidecar reads pages of its own record as well, 12 to 20 KiB/s: few calls, but a share of the bytes.
        _over("read_kib_over_its_own_reads", sidecar.read_kib_per_second, same.read_kib_per_second, None),
        *_cost(sidecar, models),
    )
    seconds = sidecar.end.at_s - sidecar.start.at_s
    return Part(
        f"{name}_at_10_hz", f"Sidecar: {models} model{'s' if models > 1 else ''} at 10 Hz, {seconds:.0f} s", figures
    )


def _over(name: str, ours: float, peers: float, goal: Goal | None) -> Figure:
    """Compare with a peer of the same run."""
    return Figure(
        name=name,
        value=ours / peers if peers else None,
        unit="times",
        goal=goal,
        beside={"ours": ours, "peer": peers},
    )


def _everyday_part(sidecar: Measured, runner: Measured) -> Part:
    runner_rss = Figure(
        name="runner_rss",
        value=runner.end.rss_bytes / MIB,
        unit="MiB",
        beside={"bare_interpreter_rss": _bare_interpreter_mib(), "cpu_percent": 100 * runner.cpu_share},
    )
    return Part(
        "everyday",
        "Sidecar: one model with room, default settings, asked by probes and scraped",
        (*_cost(sidecar, 1), runner_rss),
    )


def _cost(sidecar: Measured, models: int) -> tuple[Figure, ...]:
    return (
        Figure(
            name="cpu_percent_of_a_core_per_model",
            value=100 * sidecar.cpu_share / models,
            unit="%",
            goal=_CPU,
            beside={
                "together": 100 * sidecar.cpu_share,
                "context_switches_per_second": sidecar.end.switches_per_second_since(sidecar.start),
            },
        ),
        Figure(
            name="rss_at_end",
            value=sidecar.end.rss_bytes / MIB,
            unit="MiB",
            goal=_RSS,
            beside={"at_start": sidecar.start.rss_bytes / MIB, "in_the_middle": sidecar.middle.rss_bytes / MIB},
        ),
        Figure(
            name="rss_growth_in_second_half",
            value=(sidecar.end.rss_bytes - sidecar.middle.rss_bytes) / MIB,
            unit="MiB",
            goal=_FLAT,
        ),
    )


def _bare_interpreter_mib() -> float:
    """RSS of an interpreter that does nothing."""
    with subprocess.Popen(
        [sys.executable, "-c", "import os; os.write(1, b'.'); os.read(0, 1)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 1)
        return usage(process.pid).rss_bytes / MIB
