"""NVIDIA's own Python binding on the stand-in NVML. No GPU is involved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.stubs.pretend import PretendCards

MIB = 1 << 20
TWO_CARDS = {
    "count": 2,
    "driver": "580.65.06",
    "gpu0.total": "8G",
    "gpu0.reserved": "256M",
    "gpu0.process": ["4242:1G", "4343:512M"],
    "gpu0.utilization.gpu": 37,
    "gpu1.total": "4G",
    "gpu1.mig": 1,
    "gpu1.mig0.uuid": "MIG-aaaa",
    "gpu1.mig0.total": "2G",
    "gpu1.mig0.used": "1G",
}


def ask(cards: PretendCards, code: str) -> Any:  # noqa: ANN401 - JSON
    """Run code that leaves its answer in `said`."""
    done = cards.python(f"import json, pynvml as n\n{code}\nprint(json.dumps(said))")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_memory_processes_and_load(tmp_path: Path) -> None:
    """Memory in both versions of the call, processes with their bytes, utilisation and driver are as configured."""
    said = ask(
        PretendCards(tmp_path, TWO_CARDS),
        """
n.nvmlInit()
card = n.nvmlDeviceGetHandleByIndex(0)
old, new = n.nvmlDeviceGetMemoryInfo(card), n.nvmlDeviceGetMemoryInfo(card, version=n.nvmlMemory_v2)
said = [n.nvmlSystemGetDriverVersion(), n.nvmlDeviceGetCount(), old.used, new.used, new.reserved, new.free,
        [[one.pid, one.usedGpuMemory] for one in n.nvmlDeviceGetComputeRunningProcesses(card)],
        n.nvmlDeviceGetUtilizationRates(card).gpu]
""",
    )
    held = 1536 * MIB
    free = 8192 * MIB - held - 256 * MIB
    processes = [[4242, 1024 * MIB], [4343, 512 * MIB]]
    assert said == ["580.65.06", 2, held + 256 * MIB, held, 256 * MIB, free, processes, 37]


def test_mig_slices(tmp_path: Path) -> None:
    """A MIG card has slices with memory of their own, no utilisation, and no slice past the last."""
    said = ask(
        PretendCards(tmp_path, TWO_CARDS),
        """
n.nvmlInit()
card = n.nvmlDeviceGetHandleByIndex(1)
piece = n.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)
said = [n.nvmlDeviceGetMigMode(card), n.nvmlDeviceGetUUID(piece), n.nvmlDeviceGetMemoryInfo(piece).used]
for call in (lambda: n.nvmlDeviceGetUtilizationRates(card), lambda: n.nvmlDeviceGetMigDeviceHandleByIndex(card, 1)):
    try:
        call()
    except n.NVMLError as error:
        said.append(type(error).__name__)
""",
    )
    assert said == [[1, 1], "MIG-aaaa", 1024 * MIB, "NVMLError_NotSupported", "NVMLError_NotFound"]


def test_xid_and_a_lost_card(tmp_path: Path) -> None:
    """An Xid arrives as an event while somebody waits; the lost card then answers that it is lost."""
    cards = PretendCards(tmp_path, TWO_CARDS)
    said = ask(
        cards,
        f"""
import pathlib, threading
n.nvmlInit()
card = n.nvmlDeviceGetHandleByIndex(0)
events = n.nvmlEventSetCreate()
n.nvmlDeviceRegisterEvents(card, n.nvmlEventTypeXidCriticalError, events)
said = []
try:
    n.nvmlEventSetWait(events, 10)
except n.NVMLError_Timeout:
    said.append("quiet")
cards = pathlib.Path({str(tmp_path / "cards")!r})
lost = cards.read_text() + "xid=0:79\\ngpu0.lost=1\\n"
threading.Timer(0.1, lambda: cards.write_text(lost)).start()
said.append(n.nvmlEventSetWait(events, 5000).eventData)
try:
    n.nvmlDeviceGetMemoryInfo(card)
except n.NVMLError_GpuIsLost:
    said.append("lost")
""",
    )
    assert said == ["quiet", 79, "lost"]


def test_absent_driver_and_missing_permission(tmp_path: Path) -> None:
    """Without cards the driver is not loaded; a scripted failure gives its own error."""
    cards = PretendCards(tmp_path, {"fail.nvmlDeviceGetMemoryInfo": 4})
    code = """
said = []
try:
    n.nvmlInit()
    n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0))
except n.NVMLError as error:
    said.append(type(error).__name__)
"""
    assert ask(cards, code) == ["NVMLError_NoPermission"]
    (tmp_path / "cards").unlink()
    assert ask(cards, code) == ["NVMLError_DriverNotLoaded"]
