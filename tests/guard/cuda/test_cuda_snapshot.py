"""Pictures of the allocator beside the box: what is in them, and their bounds. On pretend cards no GPU is involved."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from guard.cuda import snapshot
from tests.guard.cuda.host import MIB, CudaHost

FAIL = """
only_a_gibibyte()
kept = [take(100), take(50)]
del kept[0]
for i in range(3):
    try:
        take(5000 + 100 * i)
    except torch.OutOfMemoryError:
        pass
print(json.dumps([one[3].get("snapshot") for one in failures()]))
"""


def _pictures(host: CudaHost) -> list[Any]:
    """Read every picture as torch's viewer would."""
    return [pickle.loads(path.read_bytes()) for path in sorted((host.shared / "boxes").glob("*.pickle"))]


@pytest.mark.torch
@pytest.mark.gpu
def test_traceless_by_default(host: CudaHost) -> None:
    """The first of several failures leaves a picture of segments and blocks without a history; its record names it."""
    names = host.told(FAIL)
    (picture,) = _pictures(host)
    assert [name is not None for name in names] == [True, False, False]
    assert (host.shared / "boxes" / names[0]).exists()
    assert picture["device_traces"] == []
    blocks = [block for segment in picture["segments"] for block in segment["blocks"]]
    assert [block["size"] for block in blocks if block["state"] == "active_allocated"] == [50 * MIB]
    assert all(not block["frames"] for block in blocks)


@pytest.mark.torch
@pytest.mark.gpu
def test_history_on_request(host: CudaHost) -> None:
    """With a history asked for, the picture says which line allocated what; metadata of the server's stays out."""
    code = "torch.zeros(1).cuda()\ntorch.cuda.memory._set_memory_metadata('a prompt')\n" + FAIL
    host.told(code, OOMGUARD_CUDA_HISTORY="50")
    (picture,) = _pictures(host)
    (trace,) = picture["device_traces"]
    assert 0 < len(trace) <= 50
    assert trace[-1]["action"] == "oom"
    names = {frame["name"] for entry in trace for frame in entry["frames"]}
    assert "take" in names
    assert "a prompt" not in str(picture)


@pytest.mark.torch
def test_history_of_the_server_stays(host: CudaHost) -> None:
    """A history that the server records is used as it is, and uninstalling does not end it; off means no picture."""
    code = """
torch.zeros(1).cuda()
torch.cuda.memory._record_memory_history("all", max_entries=7)
guard.install()
try:
    take(5000)
except torch.OutOfMemoryError:
    pass
guard.install().uninstall()
print(json.dumps(torch._C._cuda_isHistoryEnabled()))
"""
    assert host.told(code, install="", OOMGUARD_CUDA_HISTORY="50") is True
    (picture,) = _pictures(host)
    assert len(picture["device_traces"][0]) <= 7


@pytest.mark.torch
def test_off(host: CudaHost) -> None:
    """Switched off, a failure leaves no picture."""
    assert host.told(FAIL, OOMGUARD_CUDA_SNAPSHOT="false") == [None, None, None]
    assert _pictures(host) == []


def _picture(segments: int, entries: int) -> dict[str, Any]:
    """A large picture, made up."""
    frames = [{"filename": f"/a/{i}.py", "line": i, "name": f"f{i}"} for i in range(20)]
    return {
        "segments": [
            {"device": 0, "total_size": i, "blocks": [{"address": i * j, "frames": frames} for j in range(20)]}
            for i in range(segments)
        ],
        "device_traces": [[{"action": "alloc", "addr": i << 20, "size": i, "frames": frames} for i in range(entries)]],
    }


@pytest.mark.parametrize(("segments", "entries"), [(10, 10), (10, 40_000), (20_000, 0), (20_000, 40_000)])
def test_size_is_bounded(segments: int, entries: int) -> None:
    """What does not fit loses the older half of its history first, then its small segments."""
    packed = snapshot._packed(_picture(segments, entries))
    assert len(packed) <= snapshot.LIMIT_BYTES
    kept = pickle.loads(packed)
    if entries:
        assert not kept["device_traces"][0] or kept["device_traces"][0][-1]["size"] == entries - 1
    assert kept["segments"]
    assert max(one["total_size"] for one in kept["segments"]) == segments - 1
    assert kept.get("segments_left_out", False) is (len(kept["segments"]) < segments)


def test_count_is_bounded(tmp_path: Path) -> None:
    """The folder keeps the newest pictures only, and half-written ones have no picture's name."""
    for number in range(snapshot.KEPT + 3):
        path = tmp_path / f"s{number:02}.oom-1.pickle"
        snapshot._write(path, b"picture")
        snapshot._prune(tmp_path)
    assert len(list(tmp_path.iterdir())) == snapshot.KEPT
    assert not (tmp_path / "s00.oom-1.pickle").exists()


@pytest.mark.parametrize(("text", "entries"), [("", 0), (" 500 ", 500), ("999999999", snapshot.MOST_ENTRIES)])
def test_history_is_capped(text: str, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much history is asked for, it has a bound; torch's own default has none."""
    monkeypatch.setenv(snapshot.HISTORY, text)
    assert snapshot.wanted_history() == entries
