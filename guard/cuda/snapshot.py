"""A picture of torch's allocator at the moment of an out-of-memory, in a file beside the black box.

What it holds: segments and blocks of the failing device with sizes, states and addresses, and, where a history is
recorded, who allocated what (file, line, function). No tensor values, no prompts: metadata that the server attached to
allocations is left out. The file is a pickle of plain dicts and lists in the shape of torch's own snapshots, so torch's
viewer (docs.pytorch.org/memory_viz) opens it.

Bounds: `LIMIT_BYTES` a file, `PER_PROCESS` files a process and one in `PAUSE_SECONDS`, `KEPT` in the folder, the oldest
out first.

Without a history the picture is cheap (2.14.1: a fraction of a millisecond); a torch that cannot leave traces out gets
none. The history is opt-in since it costs some 2 us an allocation; it belongs to one owner, so a history of the
server's own is used as it is and never switched.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any, Final

from guard.fence import fence
from guard.switches import is_off

LIMIT_BYTES: Final = 1 << 20
PER_PROCESS: Final = 2
PAUSE_SECONDS: Final = 10.0
KEPT: Final = 8
SUFFIX: Final = ".pickle"
SWITCH: Final = "OOMGUARD_CUDA_SNAPSHOT"
HISTORY: Final = "OOMGUARD_CUDA_HISTORY"
MOST_ENTRIES: Final = 100_000

_FRAME: Final = ("filename", "line", "name")
_BLOCK: Final = ("address", "size", "requested_size", "state", "frames")
_SEGMENT: Final = (
    "device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
    "segment_pool_id", "is_expandable", "frames", "blocks",
)  # fmt: skip
_TRACE: Final = ("action", "addr", "frames", "size", "stream", "device_free", "time_us", "segment_pool_id")

Plain = dict[str, Any]


class Camera:
    """Takes the pictures of one process."""

    __slots__ = ("_last_s", "_taken")

    def __init__(self) -> None:
        self._taken = 0
        self._last_s = float("-inf")

    def take(self, box_path: str, device: int) -> str | None:
        """Take one of a device and give the file's name; None where there shall or can be none.

        Raises:
            OSError: the file cannot be written; nothing is left behind.
        """
        now_s = time.monotonic()
        if _off() or self._taken >= PER_PROCESS or now_s - self._last_s < PAUSE_SECONDS:
            return None
        picture = _picture(device)
        if picture is None:
            return None
        self._taken, self._last_s = self._taken + 1, now_s
        box = Path(box_path)
        path = box.with_name(f"{box.stem}.oom-{self._taken}{SUFFIX}")
        _write(path, _packed(picture))
        _prune(path.parent)
        return path.name


def _off() -> bool:
    return is_off(SWITCH)


def wanted_history() -> int:
    """How many entries of history are asked for, at most `MOST_ENTRIES`; 0 is none. Torch's own default has no bound.

    Raises:
        ValueError: it is no number.
    """
    text = os.environ.get(HISTORY, "").strip()
    return min(int(text), MOST_ENTRIES) if text else 0


def start_history() -> bool:
    """Begin to record the history if it is asked for and nobody records one. CUDA must be up."""
    entries = wanted_history()
    torch: Any = sys.modules["torch"]
    if entries <= 0 or _history_runs(torch):
        return False
    torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=entries)  # noqa: SLF001 - torch has no public name for it
    return True


def stop_history() -> None:
    """End a history that we began."""
    sys.modules["torch"].cuda.memory._record_memory_history(None)  # noqa: SLF001 - see above


def _history_runs(torch: Any) -> bool:  # noqa: ANN401 - torch is not imported for types
    runs = getattr(torch._C, "_cuda_isHistoryEnabled", None)  # noqa: SLF001 - see above
    return bool(runs()) if runs is not None else False


def _picture(device: int) -> Plain | None:
    torch: Any = sys.modules["torch"]
    if _history_runs(torch):
        found = torch.cuda.memory._snapshot()  # noqa: SLF001 - see above
        segments, traces = found["segments"], found["device_traces"]
    else:
        try:
            segments, traces = torch.cuda.memory_snapshot(include_traces=False), []
        except TypeError:  # torch before 2.11 or so: it would copy what history there is, unbounded
            return None
    return {
        "segments": [_plain(one, _SEGMENT) for one in segments if one.get("device") == device],
        "device_traces": [
            [_plain(one, _TRACE) for one in trace] if index == device else [] for index, trace in enumerate(traces)
        ],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _plain(found: Plain, names: tuple[str, ...]) -> Plain:
    """Copy what is known to hold no data of the server's."""
    kept = {name: found[name] for name in names if name in found}
    if "frames" in kept:
        kept["frames"] = [{name: frame[name] for name in _FRAME if name in frame} for frame in kept["frames"]]
    if "blocks" in kept:
        kept["blocks"] = [_plain(block, _BLOCK) for block in kept["blocks"]]
    return kept


def _packed(picture: Plain) -> bytes:
    """Pickle it; what does not fit loses the older half of its history, then the smaller half of its segments."""
    while True:
        packed = pickle.dumps(picture, protocol=4)
        if len(packed) <= LIMIT_BYTES:
            return packed
        traces = picture["device_traces"]
        if any(traces):
            picture["device_traces"] = [trace[len(trace) // 2 + 1 :] for trace in traces]
        else:
            largest = sorted(picture["segments"], key=lambda one: -int(one.get("total_size", 0)))
            picture["segments"] = largest[: len(largest) // 2]
            picture["segments_left_out"] = True


def _write(path: Path, packed: bytes) -> None:
    temporary = path.with_name(f".{path.stem}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        try:
            os.posix_fallocate(fd, 0, len(packed))  # a full volume says so here, before a byte is written
            os.write(fd, packed)
        finally:
            os.close(fd)
        temporary.rename(path)
    except OSError:
        temporary.unlink()
        raise


def _prune(directory: Path) -> None:
    """Remove the oldest pictures beyond `KEPT`; what belongs to another user stays."""
    with fence("cuda snapshot"), contextlib.suppress(OSError):
        found = sorted(directory.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
        for path in found[:-KEPT]:
            with contextlib.suppress(OSError):
                path.unlink()
