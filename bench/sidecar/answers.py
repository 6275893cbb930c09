"""How soon `/livez` answers while the model thrashes, beside the model's own health page, asked at the same time."""

from __future__ import annotations

import contextlib
import http.client
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


def measure(requests: int) -> Iterator[Part]:
    """Ask `requests` times."""
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
    yield Part(
        "answers",
        f"/livez while the model thrashes, {len(livez)} requests",
        (
            Figure(
                name="livez_p99",
                value=_milliseconds(percentile(livez, 99)),
                unit="ms",
                goal=Goal(at_most=10.0),
                beside={"p50": _milliseconds(percentile(livez, 50)), "max": _milliseconds(max(livez))},
            ),
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
