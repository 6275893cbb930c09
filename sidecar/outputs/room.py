"""What the kernel does not print but every reader wants: how much of a level is held, and how much room is left."""

from __future__ import annotations

from dataclasses import dataclass

from guard.kernel.headroom import headroom_bytes, unreclaimable_bytes
from guard.model import Known, Limit, Reading, Unknown, Why
from sidecar.sample import LevelSample, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Derived figures of one level (guard.kernel.headroom says how)."""

    name: str
    depth: int
    unreclaimable_bytes: Reading[int]
    headroom_bytes: Reading[Limit]


def room(sample: Sample, level: LevelSample) -> Room:
    """Derive the figures of one level of a sample."""
    meminfo = sample.node.meminfo
    swap_free: Reading[int] = Unknown(Why.MISSING, "SwapFree of /proc/meminfo")
    if isinstance(meminfo, Unknown):
        swap_free = meminfo
    elif "SwapFree" in meminfo.value:
        swap_free = Known(meminfo.value["SwapFree"])
    return Room(
        name=level.name,
        depth=level.depth,
        unreclaimable_bytes=unreclaimable_bytes(level.memory),
        headroom_bytes=headroom_bytes(level.memory, swap_free, hidden_ancestors=sample.hidden_ancestors),
    )
