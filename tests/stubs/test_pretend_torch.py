"""torch's real CUDA allocator on pretend cards. No GPU is involved; nothing here validates behaviour on a real one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stubs.pretend import PretendCards

pytestmark = [pytest.mark.torch, pytest.mark.slow]

MIB = 1 << 20
ONE_GIB = {"gpu0.total": "1G", "gpu0.context": "12M"}


@pytest.fixture
def cards(tmp_path: Path) -> PretendCards:
    """One card of 1 GiB."""
    return PretendCards(tmp_path / "cards", ONE_GIB)


def told(done: subprocess.CompletedProcess[str]) -> Any:  # noqa: ANN401 - JSON
    """What the code printed as JSON on its last line."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_without_cards_there_is_no_cuda() -> None:
    """Without configured cards torch imports without a warning, says that CUDA is absent, and computes on the CPU."""
    code = "import json, torch; print(json.dumps([torch.cuda.is_available(), (torch.ones(3) * 2).sum().item()]))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert told(done) == [False, 6.0]
    assert done.stderr == ""


def test_out_of_memory_is_torchs_own(cards: PretendCards) -> None:
    """A full card gives torch's OutOfMemoryError with its own words, one call of the observer, and counts it."""
    done = cards.python(
        """
import json, torch
seen, kept = [], []
torch._C._cuda_attach_out_of_memory_observer(lambda *told: seen.append(told))
try:
    while True:
        kept.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as error:
    text = str(error)
print(json.dumps([seen, text, torch.cuda.memory_stats()["num_ooms"], len(kept)]))
"""
    )
    seen, text, ooms, kept = told(done)
    assert seen == [[0, 100 * MIB, 1024 * MIB, 12 * MIB]]
    assert "Tried to allocate 100.00 MiB. GPU 0 has a total capacity of 1024.00 MiB of which 12.00 MiB is free" in text
    assert "this process has 1012.00 MiB memory in use" in text
    assert (ooms, kept) == (1, 10)


def test_another_process_is_named(cards: PretendCards) -> None:
    """What another process holds lowers what is free, and torch's message names it."""
    cards.set({**ONE_GIB, "gpu0.process": "4242:900M"})
    done = cards.python(
        """
import json, torch
try:
    torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(json.dumps([str(error), torch.cuda.mem_get_info()]))
"""
    )
    text, (free, total) = told(done)
    assert "Process 4242 has 900.00 MiB memory in use" in text
    assert (free, total) == ((1024 - 12 - 900) * MIB, 1024 * MIB)


def test_memory_of_a_killed_process_comes_back(cards: PretendCards) -> None:
    """A process that ends by SIGKILL gives its memory back, as the driver sees to it on a real card."""
    code = """
import os, signal, torch
kept = torch.empty(500 << 20, dtype=torch.uint8, device="cuda")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert cards.python(code).returncode == -signal.SIGKILL
    assert list(cards.folder.glob("process.*"))
    done = cards.python("import json, torch; print(json.dumps(torch.cuda.mem_get_info()))")
    assert told(done) == [(1024 - 12) * MIB, 1024 * MIB]


def test_data_survives_the_round_trip(cards: PretendCards) -> None:
    """Copies to the card and back are real; a kernel is accepted and computes nothing."""
    done = cards.python(
        """
import json, torch
there = torch.arange(4.0).cuda()
print(json.dumps([there.cpu().tolist(), str((there + 1).device)]))
"""
    )
    assert told(done) == [[0.0, 1.0, 2.0, 3.0], "cuda:0"]


def test_expandable_segments(cards: PretendCards) -> None:
    """The allocator's virtual memory path is charged to the card too."""
    done = cards.python(
        """
import json, torch
kept = torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
before = torch.cuda.mem_get_info()[0]
del kept
torch.cuda.empty_cache()
print(json.dumps([before, torch.cuda.mem_get_info()[0]]))
""",
        PYTORCH_ALLOC_CONF="expandable_segments:True",
    )
    assert told(done) == [(1024 - 12 - 300) * MIB, (1024 - 12) * MIB]


def test_a_scripted_failure_happens_once(cards: PretendCards) -> None:
    """The second allocation from the driver fails once: torch frees its cache, tries again, and goes on."""
    cards.set({**ONE_GIB, "fail.cudaMalloc": "2,1,1"})
    done = cards.python(
        """
import json, torch
kept = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
stats = torch.cuda.memory_stats()
print(json.dumps([len(kept), stats["num_alloc_retries"], stats["num_ooms"]]))
"""
    )
    assert told(done) == [3, 1, 0]


@pytest.mark.parametrize(
    ("settings", "work", "type_name", "text"),
    [
        ({"gpu0.error": 719}, "there + 1", "AcceleratorError", "unspecified launch failure"),
        ({"fail.cudaLaunchKernel": 2}, "there + 1", "AcceleratorError", "CUDA error: out of memory"),
        ({"fail.cublasCreate_v2": 3}, "there @ there", "RuntimeError", "CUBLAS_STATUS_ALLOC_FAILED"),
    ],
)
def test_failures_beside_the_allocator(
    cards: PretendCards, settings: dict[str, object], work: str, type_name: str, text: str
) -> None:
    """A sick card, a full one outside the allocator, and cuBLAS without memory: each as torch reports it."""
    code = f"""
import json, pathlib, torch
there = torch.zeros(8, 8).cuda()
cards = pathlib.Path({str(cards.folder / "cards")!r})
cards.write_text(cards.read_text() + {"".join(f"{k}={v}" + chr(10) for k, v in settings.items())!r})
try:
    {work}
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""
    name, said = told(cards.python(code))
    assert name == type_name
    assert text in said


def test_nvml_and_cuda_see_the_same_memory(cards: PretendCards) -> None:
    """NVML counts what torch holds, by process."""
    done = cards.python(
        """
import json, os, pynvml, torch
kept = torch.empty(500 << 20, dtype=torch.uint8, device="cuda")
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
processes = pynvml.nvmlDeviceGetComputeRunningProcesses(card)
print(json.dumps([pynvml.nvmlDeviceGetMemoryInfo(card).used,
                  [[one.pid == os.getpid(), one.usedGpuMemory] for one in processes]]))
"""
    )
    assert told(done) == [512 * MIB, [[True, 512 * MIB]]]


def test_a_child_of_a_process_with_cuda_keeps_out(cards: PretendCards) -> None:
    """After fork torch refuses CUDA in the child, and the child's exit does not free its parent's memory."""
    done = cards.python(
        """
import json, os, torch
kept = torch.empty(500 << 20, dtype=torch.uint8, device="cuda")
child = os.fork()
if not child:
    try:
        torch.ones(1).cuda()
    except RuntimeError as error:
        os._exit(7 if "forked subprocess" in str(error) else 8)
_, status = os.waitpid(child, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), torch.cuda.mem_get_info()[0]]))
"""
    )
    assert told(done) == [7, 512 * MIB]
