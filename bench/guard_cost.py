"""What the guard costs inside a server: one fresh interpreter for each question, the answer as JSON on stdout.

    OOMGUARD_DIR=FOLDER python -m bench.guard_cost marks|install|load

Times are in seconds. Peers are measured in the same process: a counter of prometheus-client, which many servers
already pay for each token, and the unwrapped `torch.load`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

REPEATS = 15
CALLS = 4000
LOADS = 150


def per_call(call: Callable[[], object]) -> float:
    """Give the seconds of one call, an empty loop taken off. The least of several runs: more is other processes."""
    empty = min(timeit.repeat("pass", repeat=REPEATS, number=CALLS))
    return (min(timeit.repeat(call, repeat=REPEATS, number=CALLS)) - empty) / CALLS


def marks() -> dict[str, float]:
    """Beats, progress and whole marks of an installed guard, beside a counter of prometheus-client."""
    import prometheus_client

    import guard

    assert guard.install().active
    counter = prometheus_client.Counter("tokens", "Tokens.")

    def whole() -> None:
        with guard.loading("checkpoint.safetensors", bytes_expected=1 << 30) as load:
            load.progress("layers.0.weight", 1 << 20)

    def bounded() -> None:
        with guard.busy("warm-up", at_most=60.0):
            pass

    with guard.loading("checkpoint.safetensors", bytes_expected=1 << 30) as load:
        return {
            "beat": per_call(lambda: guard.beat("tokens")),
            "progress": per_call(lambda: load.progress("layers.0.weight", 1 << 20)),
            "loading_with_progress": per_call(whole),
            "busy": per_call(bounded),
            "prometheus_counter": per_call(counter.inc),
        }


def install() -> dict[str, float]:
    """Importing the guard and installing it after torch."""
    began = time.perf_counter()
    import torch  # noqa: F401 - its import is what is measured, and what the hooks find

    torch_there = time.perf_counter()
    import guard

    imported = time.perf_counter()
    handle = guard.install()
    installed = time.perf_counter()
    assert handle.active
    return {
        "import_torch": torch_there - began,
        "import_guard": imported - torch_there,
        "install": installed - imported,
    }


def load() -> dict[str, float]:
    """`torch.load` with and without its hook, by turns, of a tiny file and of one of 16 MiB."""
    import torch

    import guard

    assert guard.install().active
    wrapped: Any = torch.load
    plain = wrapped.__wrapped__
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, floats in (("tiny", 16), ("16_mib", 4 << 20)):
            path = Path(folder, name)
            torch.save({"weight": torch.zeros(floats)}, path)
            pairs = [(timed(plain, path), timed(wrapped, path)) for _ in range(LOADS)]
            found[f"{name}_plain"] = median(before for before, _ in pairs)
            found[f"{name}_wrapped"] = median(after for _, after in pairs)
    return found


def timed(call: Callable[[Path], object], path: Path) -> float:
    """Give the seconds of one call."""
    began = time.perf_counter()
    call(path)
    return time.perf_counter() - began


if __name__ == "__main__":
    questions: dict[str, Callable[[], dict[str, float]]] = {"marks": marks, "install": install, "load": load}
    sys.stdout.write(json.dumps(questions[sys.argv[1]]()) + "\n")
