"""Failures that no observer sees, by their exceptions, on scripted pretend cards. No GPU is involved."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.guard.cuda.host import GIB, MIB, CudaHost, records, without_noise

pytestmark = [pytest.mark.torch]

SCRIPT = """
import pathlib
there = torch.zeros(8, 8).cuda()
cards = pathlib.Path(os.environ["OOMGUARD_PRETEND_GPU"], "cards")
cards.write_text(cards.read_text() + {line!r})
"""
REJECT = (
    "torch._C._accelerator_setAllocatorSettings('per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True')\n"
    "take(700)"
)

CASES: dict[str, tuple[str, str, dict[str, str], str, dict[str, object]]] = {
    # scripted line, code, environment, kind, fields
    "launch": ("fail.cudaLaunchKernel=2\n", "there + 1", {}, "cuda_out_of_memory", {"source": "driver"}),
    "cublas": ("fail.cublasCreate_v2=3\n", "there @ there", {}, "cuda_out_of_memory", {"source": "cublas"}),
    "pinned": (
        "fail.cudaHostAlloc=2\n",
        "torch.ones(1 << 20).pin_memory()",
        {},
        "pinned_memory",
        {"source": "cudaHostAlloc"},
    ),
    "pinned by argument": (
        "fail.cudaHostAlloc=2\n",
        "torch.empty(1 << 20, pin_memory=True)",
        {},
        "pinned_memory",
        {"source": "cudaHostAlloc"},
    ),
    "async backend": (
        "",
        "take(2048)",
        {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
        "cuda_out_of_memory",
        {
            "source": "cudaMallocAsync",
            "requested_bytes": 2 * GIB,
            "total_bytes": GIB,
            "free_bytes": 1010 * MIB,
            "allocated_bytes": 256,
            "device": 0,
            "figures": "rounded",
        },
    ),
    "absurd size": (
        "",
        "torch.empty(1 << 60, dtype=torch.uint8, device='cuda')",
        {},
        "cuda_out_of_memory",
        {"source": "torch"},
    ),
    "rejected early": (
        "",
        REJECT,
        {},
        "cuda_out_of_memory",
        {"source": "per-process fraction", "requested_bytes": 700 * MIB, "figures": "rounded"},
    ),
    "sick card": ("gpu0.error=719\n", "there + 1", {}, "exception", {}),
    "library without a handle": (
        "",
        "torch.linalg.inv(there)",
        {},
        "cuda_library_failure",
        {"source": "cusolver"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_uncaught(name: str, pretend: Callable[..., CudaHost]) -> None:
    """Each is recorded in box, on standard error and in the termination log, once; the exception stays torch's own."""
    line, code, environment, kind, fields = CASES[name]
    host = pretend({})
    ended = host.run(SCRIPT.format(line=line) + code, **environment)
    (failure,) = host.failures
    assert (kind, True, fields) == (failure.kind, failure.fatal, dict(failure.fields)), failure
    (record,) = records(ended)
    assert (kind, True) == (record["kind"], record["fatal"])
    assert fields.items() <= record.items()
    assert json.loads(host.termination_log.splitlines()[-1]) == record
    last = without_noise(ended.own_err).split("Traceback (most recent call last):")[-1]
    assert f"\n{failure.exception}: {failure.message.strip()[:60]}" in last
    assert ended.returncode == 1


def test_refused_observer_is_told(pretend: Callable[..., CudaHost]) -> None:
    """A backend without observers brings CUDA up all the same; `status()` says that none is attached."""
    host = pretend({})
    code = "torch.zeros(1).cuda()\nprint(json.dumps(guard.status().cuda['observer']))"
    observer = host.told(code, PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")
    assert observer.startswith("refused: cudaMallocAsync does not yet support")


def test_another_process_on_the_card_is_named(pretend: Callable[..., CudaHost]) -> None:
    """Who holds the card is told by NVML's own numbers, the largest first, though no binding is installed."""
    host = pretend({"gpu0.process": ["4242:500M", "4343:300M"]})
    code = """
sys.modules["pynvml"] = None
kept = take(100)
try:
    take(200)
except torch.OutOfMemoryError:
    pass
print(json.dumps([os.getpid(), failures()[0][3]["holders"]]))
"""
    pid, holders = host.told(code)
    assert holders == f"4242: {500 * MIB}, 4343: {300 * MIB}, {pid}: {112 * MIB}"
