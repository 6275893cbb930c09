"""The GPU reader over NVIDIA's own binding on the stand-in NVML. No GPU is involved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.stubs.pretend import PretendCards

MIB: Final = 1 << 20
CARDS: Final = {
    "count": 2,
    "driver": "580.65.06",
    "gpu0.total": "8G",
    "gpu0.reserved": "256M",
    "gpu0.process": ["4242:1G", "4343:512M"],
    "gpu0.utilization.gpu": 37,
    "gpu0.temperature": 61,
    "gpu1.total": "4G",
    "gpu1.mig": 1,
    "gpu1.mig0.uuid": "MIG-aaaa",
    "gpu1.mig0.total": "2G",
    "gpu1.mig0.used": "1G",
    "gpu1.mig0.process": "77:1G",
}
HEAD: Final = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from guard.model import Known, Unknown
from sidecar.clock import SystemClock
from sidecar.collect import gpu
from sidecar.outputs.shape import plain
from sidecar.sample import NO_GPU
from tests.stubs.pretend import PretendCards
SETTINGS = {settings!r}

def until(condition):
    deadline = time.monotonic() + 30
    while True:
        latest = reader.latest()
        if condition(latest):
            return latest
        assert time.monotonic() < deadline, latest
        time.sleep(0.01)

def set_cards(**changed):
    cards.set({{**SETTINGS, **{{key.replace("__", "."): value for key, value in changed.items()}}}})

cards = PretendCards(Path({folder!r}), SETTINGS)
reader = gpu.GpuReader(SystemClock())
"""
ROOT: Final = str(Path(__file__).parents[3])


def ask(folder: Path, code: str, settings: dict[str, object] | None = None) -> Any:  # noqa: ANN401 - JSON
    """Run code that leaves its answer in `said`, with a reader that it may start."""
    cards = PretendCards(folder, settings or CARDS)
    head = HEAD.format(root=ROOT, folder=str(folder), settings=settings or CARDS)
    done = cards.python(f"{head}\n{code}\nreader.close()\nprint(json.dumps(plain(said)))")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


READ: Final = "reader.start()\nsaid = until(lambda latest: latest is not NO_GPU)"


def test_a_whole_reading(tmp_path: Path) -> None:
    """Driver, memory with the reserved part apart, processes, load, temperature, and the slices of a MIG card."""
    said = ask(tmp_path, READ)["value"]
    assert said["driver"] == {"value": "580.65.06"}
    first, second = said["cards"]
    assert first["memory"]["value"] == {
        "total_bytes": 8192 * MIB,
        "used_bytes": 1536 * MIB,
        "free_bytes": (8192 - 1536 - 256) * MIB,
        "reserved_bytes": {"value": 256 * MIB},
    }
    assert first["processes"]["value"] == [
        {"pid": 4242, "used_bytes": {"value": 1024 * MIB}},
        {"pid": 4343, "used_bytes": {"value": 512 * MIB}},
    ]
    assert (first["load"]["value"]["compute_ratio"], first["temperature_celsius"]) == (0.37, {"value": 61})
    assert (first["lost"], first["slices"], first["xids"]) == ({"value": False}, {"value": []}, {"value": []})
    assert second["load"]["unknown"] == "unsupported", "a card in MIG mode has no load of its own"
    [piece] = second["slices"]["value"]
    assert (piece["index"], piece["uuid"], piece["memory"]["value"]["used_bytes"]) == (
        *(0, {"value": "MIG-aaaa"}),
        1024 * MIB,
    )
    assert piece["processes"]["value"] == [{"pid": 77, "used_bytes": {"value": 1024 * MIB}}]


def test_an_old_driver(tmp_path: Path) -> None:
    """Without the second form of the memory call the reserved part is unknown, not zero."""
    said = ask(tmp_path, READ, CARDS | {"fail.nvmlDeviceGetMemoryInfo_v2": 13})
    memory = said["value"]["cards"][0]["memory"]["value"]
    assert memory["used_bytes"] == (1536 + 256) * MIB
    assert memory["reserved_bytes"]["unknown"] == "unsupported"


def test_missing_permission(tmp_path: Path) -> None:
    """What may not be read is denied, field by field; the rest is there."""
    denied = {"fail.nvmlDeviceGetMemoryInfo_v2": 4, "fail.nvmlDeviceGetComputeRunningProcesses_v3": 4}
    card = ask(tmp_path, READ, CARDS | denied)["value"]["cards"][0]
    assert card["memory"] == {
        "unknown": "denied",
        "where": "nvmlDeviceGetMemoryInfo",
        "errno": 4,
        "detail": "Insufficient Permissions",
    }
    assert (card["processes"]["unknown"], card["lost"]["unknown"]) == ("denied", "denied")
    assert card["load"]["value"]["compute_ratio"] == 0.37


def test_processes_whose_memory_the_driver_hides(tmp_path: Path) -> None:
    """They are listed with an unknown size, not with zero."""
    card = ask(tmp_path, READ, CARDS | {"gpu0.hide_process_memory": 1})["value"]["cards"][0]
    assert [one["used_bytes"]["unknown"] for one in card["processes"]["value"]] == ["hidden", "hidden"]


def test_an_xid_and_a_lost_card_that_comes_back(tmp_path: Path) -> None:
    """An Xid is counted as it comes, a lost card is told as lost, and after a reset it is read again."""
    said = ask(
        tmp_path,
        """
reader.start()
until(lambda latest: isinstance(latest, Known))
set_cards(xid=["0:79"])
xid = until(lambda latest: latest.value.cards[0].xids.value)
set_cards(xid=["0:79", "0:79"], gpu0__lost=1)
lost = until(lambda latest: latest.value.cards[0].lost == Known(True))
twice = until(lambda latest: any(one.count == 2 for one in latest.value.cards[0].xids.value))
set_cards(xid=["0:79", "0:79"])
back = until(lambda latest: latest.value.cards[0].lost == Known(False))
said = [[one.code, one.count] for one in xid.value.cards[0].xids.value], \\
    lost.value.cards[0].memory, lost.value.cards[1].lost, back.value.cards[0].memory, \\
    [[one.code, one.count] for one in back.value.cards[0].xids.value]
""",
    )
    before, lost, other, back, after = said
    assert before == [[79, 1]]
    assert (lost["unknown"], lost["errno"]) == ("gone", 15)
    assert other == {"value": False}
    assert back["value"]["used_bytes"] == 1536 * MIB
    assert after == [[79, 2]]


def test_a_driver_that_goes_and_comes(tmp_path: Path) -> None:
    """Without a driver the reading says so, and a driver that is loaded later is found."""
    said = ask(
        tmp_path,
        """
(Path(cards.folder) / "cards").unlink()
reader.start()
absent = until(lambda latest: latest is not NO_GPU)
set_cards()
there = until(lambda latest: isinstance(latest, Known))
(Path(cards.folder) / "cards").unlink()
gone = until(lambda latest: isinstance(latest, Unknown))
set_cards(driver="590.1")
again = until(lambda latest: isinstance(latest, Known))
said = absent, there.value.driver, gone, again.value.driver
""",
    )
    assert said[0] == {"unknown": "missing", "where": "nvmlInit", "errno": 9, "detail": "Driver Not Loaded"}
    assert said[1] == {"value": "580.65.06"}
    assert said[2]["unknown"] == "missing"
    assert said[3] == {"value": "590.1"}


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo_v2", "nvmlSystemGetDriverVersion"])
def test_a_call_that_hangs_holds_up_nobody(call: str, tmp_path: Path) -> None:
    """`latest` answers at once; past the deadline it names the call, and it goes on when the driver does."""
    said = ask(
        tmp_path,
        f"""
gpu.DEADLINE_SECONDS, gpu.PERIOD_SECONDS = 0.3, 0.05
reader.start()
until(lambda latest: isinstance(latest, Known))
set_cards(**{{"hang__{call}": 1}})
began = time.monotonic()
hung = until(lambda latest: isinstance(latest, Unknown))
times = []
for _ in range(100):
    before = time.perf_counter()
    reader.latest()
    times.append(time.perf_counter() - before)
set_cards()
back = until(lambda latest: isinstance(latest, Known))
said = hung, sorted(times)[50] < 0.1, back.value.cards[0].memory
""",
    )
    hung, quick, memory = said
    assert (hung["unknown"], hung["where"]) == ("failed", call.removesuffix("_v2"))
    assert hung["detail"] == "no answer of the driver for 0.3 s"
    assert quick
    assert memory["value"]["used_bytes"] == 1536 * MIB


def test_no_library_no_thread_no_binding(tmp_path: Path) -> None:
    """On a machine without NVML nothing is imported and no thread started."""
    code = f"""
import sys, threading
sys.path.insert(0, {ROOT!r})
from sidecar.clock import SystemClock
from sidecar.collect.gpu import GpuReader
reader = GpuReader(SystemClock())
reader.start()
print(reader.latest().why.value, reader.latest().where, threading.active_count(), "pynvml" in sys.modules)
reader.close()
"""
    done = PretendCards(tmp_path).python(code, LD_LIBRARY_PATH="")
    assert (done.stderr, done.stdout.split()) == ("", ["missing", "libnvidia-ml.so.1", "1", "False"])
