"""The figures of a failed CUDA allocation, as fields of a `Failure`.

Called in the failing thread, between the failure and its exception. torch has released the allocator's lock by then and
holds the GIL for us (2.14.1, c10/cuda/CUDACachingAllocator.cpp), so its statistics may be asked. Nothing here makes a
CUDA call, so it is safe during graph capture and on a device that does not answer any more.

What cannot be asked is left out: an absent figure is unknown, never zero.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from guard.fence import fence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from guard.box.writer import BoxWriter

Fields = dict[str, "str | int | float"]

_TEXT_ROOM: Final = 160
_FIGURES: Final = (
    # (field, path in torch's nested statistics)
    ("allocated_bytes", ("allocated_bytes", "all", "current")),
    ("reserved_bytes", ("reserved_bytes", "all", "current")),
    ("inactive_split_bytes", ("inactive_split_bytes", "all", "current")),
    ("retries", ("num_alloc_retries",)),
    ("ooms", ("num_ooms",)),
    ("oom_rejections", ("num_oom_rejections",)),
)


def asked(device: int, requested: int, limit: int, free: int) -> Fields:
    """Say what the observer was told. `limit` is the card's size, or less where a fraction is set for this process."""
    fields: Fields = {"source": "torch", "device": device, "requested_bytes": requested, "free_bytes": free}
    total: int | None = None
    with fence("cuda properties"):
        total = int(sys.modules["torch"].cuda.get_device_properties(device).total_memory)
    fields["total_bytes"] = limit if total is None else total
    if total is not None and limit < total:
        fields["limit_bytes"] = limit
    return fields


def allocator(device: int) -> dict[str, int]:
    """Read the allocator's own figures of a device: bytes now, counts since the start of the process."""
    statistics: Mapping[str, Any] = sys.modules["torch"].cuda.memory_stats_as_nested_dict(device)
    return dict(_picked(statistics))


def _picked(statistics: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, path in _FIGURES:
        found: Any = statistics
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, int):
            yield name, found


def in_flight(box: BoxWriter | None, thread: str) -> Fields:
    """Name the marked operation that this thread is in, else the one that moved last in any thread."""
    if box is None or box.fd < 0:
        return {}
    from guard.box import format as layout
    from guard.box.reader import parse_box
    from guard.model import Known

    state = parse_box(os.pread(box.fd, layout.SIZE, 0), box.path)
    open_now = [one for one in state.value.operations if not one.done] if isinstance(state, Known) else []
    if not open_now:
        return {}
    found = max(open_now, key=lambda one: (one.thread == thread, one.updated_monotonic_s))
    said = [found.label, found.file, found.item]
    if found.bytes_done is not None and found.bytes_expected is not None:
        said.append(f"{found.bytes_done}/{found.bytes_expected}")
    return {"in_flight": " ".join(part for part in said if part)[-_TEXT_ROOM:]}


def thread_name() -> str:
    """Name the calling thread; one that Python did not start by its kernel name (torch's backward: `pt_autograd_0`).

    Not `threading.current_thread()`: that would register an object for every foreign thread, for ever.
    """
    import threading

    ident = threading.get_ident()
    known = next((one.name for one in threading.enumerate() if one.ident == ident), None)
    if known is not None:
        return known
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", encoding="utf-8", errors="replace") as comm:  # noqa: PTH123 - as plain as it can be, in a failing process
        return comm.read().strip()
