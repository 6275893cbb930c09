"""What the guard costs the server it lives in. The measuring itself is in `bench.guard_cost`, in fresh interpreters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Final

from bench.sidecar.figures import Figure, Goal, Part
from tests.lab.kit.places import CHECKOUT

_MARK: Final = Goal(at_most=2.0)
_INSTALL: Final = Goal(at_most=20.0)


def measure(interpreters: int) -> Iterator[Part]:
    """Start so many interpreters for each question about a start."""
    with tempfile.TemporaryDirectory(prefix="oomguard-bench-") as shared:
        marks = _ask("marks", shared)
        installs = [_ask("install", shared) for _ in range(interpreters)]
        load = _ask("load", shared)
        starts = [(_start({}), _start(_site(shared))) for _ in range(2 * interpreters)]
    yield Part("marks", "Guard: marks on the hot path", tuple(_marks(marks)))
    yield Part("install", f"Guard: start, {interpreters} interpreters", tuple(_starts(installs, starts)))
    yield Part("load", "Guard: torch.load with its hook, paired", tuple(_loads(load)))


def _marks(seconds: Mapping[str, float]) -> Iterator[Figure]:
    peer = {"prometheus_counter": seconds["prometheus_counter"] * 1e6}
    yield Figure(name="beat", value=seconds["beat"] * 1e6, unit="us", goal=_MARK, beside=peer)
    yield Figure(name="progress", value=seconds["progress"] * 1e6, unit="us", goal=_MARK)
    yield Figure(name="busy_begin_and_end", value=seconds["busy"] * 1e6, unit="us")
    yield Figure(name="loading_begin_progress_end", value=seconds["loading_with_progress"] * 1e6, unit="us")


def _starts(installs: list[Mapping[str, float]], starts: list[tuple[float, float]]) -> Iterator[Figure]:
    def middle(name: str) -> float:
        return 1e3 * median(one[name] for one in installs)

    yield Figure(
        name="install_after_torch",
        value=middle("install"),
        unit="ms",
        goal=_INSTALL,
        beside={"least": 1e3 * min(one["install"] for one in installs), "import_torch": middle("import_torch")},
    )
    yield Figure(name="import_guard", value=middle("import_guard"), unit="ms")
    plain, with_site = (1e3 * median(column) for column in zip(*starts, strict=True))
    yield Figure(
        name="interpreter_start_with_site_folder",
        value=1e3 * median(after - before for before, after in starts),
        unit="ms more",
        beside={"without": plain, "with": with_site},
    )


def _loads(seconds: Mapping[str, float]) -> Iterator[Figure]:
    for size in ("tiny", "16_mib"):
        plain, wrapped = seconds[f"{size}_plain"], seconds[f"{size}_wrapped"]
        yield Figure(
            name=f"{size}_file",
            value=1e6 * (wrapped - plain),
            unit="us more",
            beside={"unwrapped_us": 1e6 * plain, "ratio": wrapped / plain},
        )


def _ask(question: str, shared: str) -> Mapping[str, float]:
    ran = subprocess.run(
        [sys.executable, "-m", "bench.guard_cost", question],
        cwd=CHECKOUT,
        env={**os.environ, "OOMGUARD_DIR": shared},
        stdout=subprocess.PIPE,
        check=True,
    )
    answer: Mapping[str, float] = json.loads(ran.stdout)
    return answer


def _site(shared: str) -> dict[str, str]:
    """Give the environment in which `oomguard run` starts an interpreter."""
    return {"OOMGUARD": "on", "OOMGUARD_DIR": shared, "PYTHONPATH": str(CHECKOUT / "guard" / "site")}


def _start(environment: Mapping[str, str]) -> float:
    """Give the seconds that an interpreter takes to start and end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], env={**os.environ, **environment}, check=True)
    return time.perf_counter() - began
