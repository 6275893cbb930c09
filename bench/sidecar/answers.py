"""How soon `/livez` answers while the model thrashes, beside the model's own health page, and with every core taken."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from bench.demo.probes import request
from bench.sidecar.figures import Figure, Goal, Part, percentile
from bench.sidecar.stage import Model, Stage
from tests.lab.kit import loads
from tests.lab.kit.cgroups import Limits
from tests.lab.kit.ports import free_port
from tests.lab.kit.wait import until

MIB: Final = 1 << 20
LIMIT: Final = Limits(memory_max_bytes=96 * MIB)
WEIGHTS_MIB: Final = 240
THREADS: Final = 8
PACE_SECONDS: Final = 0.03
"""Pause between two requests: more often than any probe asks, far from keeping the sidecar busy."""
TIMEOUT_SECONDS: Final = 1.0
_REFAULTS: Final = 20_000
_BURNERS_PER_CORE: Final = 3


def measure(requests: int) -> Iterator[Part]:
    """Ask `requests` times."""
    yield _thrashing(requests)
    yield _without_cpu(requests)


def _thrashing(requests: int) -> Part:
    port = free_port()
    health = f"http://127.0.0.1:{port}/health"
    with Stage(probe=health, health_period_seconds="1") as stage:
        weights = stage.folder / "weights"
        loads.make_file(str(weights), WEIGHTS_MIB)
        command = loads.command(f"serve port={port}", f"thrash path={weights} threads={THREADS}")
        with stage.watched("thrash", command, LIMIT) as model:
            before = _refaults(model)
            until(lambda: _refaults(model) - before > _REFAULTS, 120, "the model to thrash")
            began, before = time.monotonic(), _refaults(model)
            livez, plain = _ask(stage.port, port, requests)
            refaults = (_refaults(model) - before) / (time.monotonic() - began)
            state = stage.get("/status")["models"]["thrash"]["judgement"]["state"]
    return Part(
        "answers",
        f"/livez while the model thrashes, {len(livez)} requests",
        (
            _soon(livez),
            Figure(
                name="model_health_page_p99",
                value=_milliseconds(percentile(plain, 99)),
                unit="ms",
                beside={
                    "p50": _milliseconds(percentile(plain, 50)),
                    "max": _milliseconds(max(plain)),
                    "requests": len(plain),
                    "refaults_per_second": refaults,
                    "state_said": state,
                },
            ),
        ),
    )


def _without_cpu(requests: int) -> Part:
    """Ask a sidecar that shares each core with three processes that never sleep; who asks comes before them."""
    taken = [sys.executable, "-S", "-c", "while True: pass"]
    with Stage() as stage, contextlib.ExitStack() as burning:
        for _ in range(_BURNERS_PER_CORE * (os.cpu_count() or 1)):
            burner = burning.enter_context(subprocess.Popen(taken))
            burning.callback(burner.kill)
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        try:
            livez = [_timed(stage.port, "/livez") for _ in range(requests)]
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
    return Part("answers_without_cpu", f"/livez with every core taken, {len(livez)} requests", (_soon(livez),))


def _soon(livez: list[float]) -> Figure:
    return Figure(
        name="livez_p99",
        value=_milliseconds(percentile(livez, 99)),
        unit="ms",
        goal=Goal(at_most=10.0),
        beside={"p50": _milliseconds(percentile(livez, 50)), "max": _milliseconds(max(livez))},
    )


def _ask(sidecar_port: int, model_port: int, requests: int) -> tuple[list[float], list[float]]:
    """Ask the sidecar so many times, and the model as often as it answers meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(lambda: [_timed(sidecar_port, "/livez") for _ in range(requests)])
        plain = list(iter(lambda: None if asking.done() else _timed(model_port, "/health"), None))
        return asking.result(), plain


def _timed(port: int, path: str) -> float:
    """Give the seconds of one request on a connection of its own; one that is given up counts its timeout."""
    time.sleep(PACE_SECONDS)
    began = time.monotonic()
    with contextlib.suppress(OSError, http.client.HTTPException):
        request(port, "GET", path, TIMEOUT_SECONDS)
    return time.monotonic() - began


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _refaults(model: Model) -> int:
    lines = model.group.file("memory.stat").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("workingset_refault"))
