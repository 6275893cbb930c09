"""One way of running a server, in a fresh interpreter: `python -m bench.guard.arm ARM`; prints its figures as JSON.

Arms: plain, again (the same once more: how far two equal arms differ), guard, history (torch's memory history),
dispatch (a TorchDispatchMode that passes on), memray (its tracker).

torch's CUDA allocator runs on a pretend card: its own code serves every allocation from its cache, which is the hot
path, and the stand-in runtime below it is slower than a real one; no GPU is involved.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

ALLOCATIONS: Final = 500
RUNS: Final = 60
"""Many short runs: the best of them was not interrupted."""
LOADS: Final = 60
TENSORS: Final = 64


def main(arm: str) -> dict[str, float]:
    """Measure everything that this arm has."""
    if arm == "guard":
        import guard
    import torch

    before = _memory()
    if arm == "guard":
        began = time.perf_counter()
        assert guard.install().active
        installed = time.perf_counter() - began
    torch.zeros(1).cuda()
    with _watching(arm):
        found = {
            "cuda_allocation": _per_call(lambda: torch.empty(1 << 20, dtype=torch.uint8, device="cuda")),
            "cpu_allocation": _per_call(lambda: torch.empty(1 << 10, dtype=torch.uint8)),
        }
    if arm in ("plain", "guard", "again"):
        found |= _loads(torch)
        found["survived_failure"] = _failure(torch)
        after = _memory()
        found |= {name: after[name] - before[name] for name in before} | {"threads": threading.active_count()}
    if arm == "guard":
        found["install"] = installed
    return found


@contextlib.contextmanager
def _watching(arm: str) -> Iterator[None]:
    with _watcher(arm):
        yield


def _watcher(arm: str) -> AbstractContextManager[Any]:
    import torch

    if arm == "history":
        torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=100_000)  # noqa: SLF001 - its only name
    if arm == "memray":
        import memray

        return memray.Tracker(Path(tempfile.mkdtemp()) / "capture.bin")  # type: ignore[no-any-return]
    if arm == "dispatch":
        from torch.utils._python_dispatch import TorchDispatchMode

        class PassOn(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's signature
                return func(*args, **(kwargs or {}))

        return PassOn()
    return contextlib.nullcontext()


def _per_call(call: Callable[[], object]) -> float:
    """Give the seconds of one call: the best of several runs."""
    runs = []
    for _ in range(RUNS):
        began = time.perf_counter()
        for _ in range(ALLOCATIONS):
            call()
        runs.append((time.perf_counter() - began) / ALLOCATIONS)
    return min(runs)


def _loads(torch: Any) -> dict[str, float]:  # noqa: ANN401 - its many parts are found at run time
    import safetensors.torch
    from safetensors import safe_open

    with tempfile.TemporaryDirectory() as folder:
        path, zipped = str(Path(folder, "m.safetensors")), str(Path(folder, "m.pt"))
        tensors = {f"layer.{i}": torch.zeros(16, 16) for i in range(TENSORS)}
        safetensors.torch.save_file(tensors, path)
        torch.save({"w": torch.zeros(16)}, zipped)

        def each() -> None:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - no mapping
                    file.get_tensor(name)

        return {
            "torch_load": _middle(lambda: torch.load(zipped)),
            "load_file": _middle(lambda: safetensors.torch.load_file(path)),
            "tensor": _middle(each) / TENSORS,
        }


def _middle(call: Callable[[], object]) -> float:
    times = []
    for _ in range(LOADS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _failure(torch: Any) -> float:  # noqa: ANN401 - see above
    """Give the seconds of one failed allocation that the server catches."""

    def fail() -> None:
        with contextlib.suppress(torch.OutOfMemoryError):
            torch.empty(1 << 42, dtype=torch.uint8, device="cuda")

    fail()
    return _middle(fail)


def _memory() -> dict[str, float]:
    """Give this process's own anonymous memory in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {
        "anon_bytes": 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])) + "\n")
