"""One way of running a server, in a fresh interpreter: `python -m bench.guard.arm ARM`.

Prints the names of what it can do. Then each line on standard input names one of them, and is answered with the seconds
of one call: so arms that live side by side are measured by turns, a few milliseconds each. After "end" it prints its
other figures as JSON.

Arms: plain, again (the same once more: how far two equal arms differ), guard, history (torch's memory history),
dispatch (a TorchDispatchMode that passes on), memray (its tracker).

torch's CUDA allocator runs on a pretend card: its own code serves every allocation from its cache, which is the hot
path, and the stand-in runtime below it is slower than a real one; no GPU is involved.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

CALLS: Final = {"cuda_allocation": 250, "cpu_allocation": 250, "torch_load": 5, "load_file": 2, "tensor": 1}
"""In one run; one of what is not here."""
RUNS: Final = 4
"""Short runs: the best of them was not interrupted."""
TENSORS: Final = 64


def main(arm: str) -> dict[str, float]:
    """Serve allocations, then measure what else this arm has."""
    if arm == "guard":
        import guard
    import torch

    before = _memory()
    if arm == "guard":
        began = time.process_time()
        assert guard.install().active
        installed = time.process_time() - began
    torch.zeros(1).cuda()
    with _watching(arm), tempfile.TemporaryDirectory() as folder:
        _serve(_allocations(torch) | (_paths(torch, Path(folder)) if arm in ("plain", "guard", "again") else {}))
        after = _memory()
    found = {name: after[name] - before[name] for name in before} | {"threads": threading.active_count()}
    if arm == "guard":
        found["install"] = installed
    return found


def _allocations(torch: Any) -> dict[str, Callable[[], object]]:  # noqa: ANN401 - its many parts are found at run time
    return {
        "cuda_allocation": lambda: torch.empty(1 << 20, dtype=torch.uint8, device="cuda"),
        "cpu_allocation": lambda: torch.empty(1 << 10, dtype=torch.uint8),
    }


def _serve(calls: Mapping[str, Callable[[], object]]) -> None:
    for call in calls.values():
        call()  # what is done once is no cost of a call
    _say(json.dumps(sorted(calls)))
    for line in sys.stdin:
        name = line.strip()
        if name == "end":
            return
        _say(repr(_per_call(calls[name], CALLS.get(name, 1)) / (TENSORS if name == "tensor" else 1)))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


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


def _per_call(call: Callable[[], object], calls: int) -> float:
    """Give the seconds of one call: the best of several runs."""
    runs = []
    for _ in range(RUNS):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        runs.append((time.perf_counter() - began) / calls)
    return min(runs)


def _paths(torch: Any, folder: Path) -> dict[str, Callable[[], object]]:  # noqa: ANN401 - see above
    import safetensors.torch
    from safetensors import safe_open

    path, zipped = str(folder / "m.safetensors"), str(folder / "m.pt")
    safetensors.torch.save_file({f"layer.{i}": torch.zeros(16, 16) for i in range(TENSORS)}, path)
    torch.save({"w": torch.zeros(16)}, zipped)

    def each() -> None:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                file.get_tensor(name)

    def fail() -> None:
        with contextlib.suppress(torch.OutOfMemoryError):
            torch.empty(1 << 42, dtype=torch.uint8, device="cuda")

    return {
        "torch_load": lambda: torch.load(zipped),
        "load_file": lambda: safetensors.torch.load_file(path),
        "tensor": each,
        "survived_failure": fail,
    }


def _memory() -> dict[str, float]:
    """Give this process's own anonymous memory in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {
        "anon_bytes": 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")),
    }


if __name__ == "__main__":
    _say(json.dumps(main(sys.argv[1])))
