"""What loads in flight will still add in anonymous memory, and whether that fits.

A load costs its file size times a factor of its path, in memory that reclaim cannot take (measured with torch 2.13 and
safetensors 0.8 on the CPU; mapped pages cost nothing, as reclaim takes them). Each path has two factors: what it costs
at least, to claim that a load cannot fit, and at most, to accept growth as explained. A path that is not in the table
claims nothing and explains one time its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from guard.model import Known, OperationKind, Unlimited
from sidecar.history import Begun, LevelPoint, Point


@dataclass(frozen=True, slots=True)
class Cost:
    """Anonymous memory as a multiple of the bytes expected."""

    at_least: float
    at_most: float


COSTS: Final[Mapping[str, Cost]] = MappingProxyType(
    {
        "torch.load": Cost(1.0, 1.0),
        "torch.load(mmap=True)": Cost(0.0, 1.0),  # copies on write
        "torch.jit.load": Cost(1.0, 1.0),
        "safetensors.torch.load": Cost(1.0, 2.0),  # the caller's bytes are there already, or are not
        "safetensors.torch.load_file": Cost(0.0, 0.0),
        "safetensors.safe_open": Cost(0.0, 1.0),  # mapped; a clone of each tensor costs its size
    }
)
_OTHER: Final = Cost(0.0, 1.0)
_TOLERANCE_RATIO: Final = 0.05  # allocator rounding, Python objects, the tensors' metadata
_TOLERANCE_BYTES: Final = 16 << 20


def needs_at_least(begun: Begun, level: LevelPoint) -> int | None:
    """Bytes that the load will surely still add to the level; None when it says nothing."""
    cost, expected = _cost(begun)
    return _remaining(begun, level, cost.at_least * expected) if cost.at_least and expected else None


def needs_at_most(begun: Begun, level: LevelPoint) -> int | None:
    """Bytes that the load may still add to the level; None when it explains nothing, or has taken more by now."""
    cost, expected = _cost(begun)
    remaining = _remaining(begun, level, cost.at_most * expected) if cost.at_most and expected else None
    tolerance = int(expected * _TOLERANCE_RATIO) + _TOLERANCE_BYTES
    return None if remaining is None or remaining + tolerance <= 0 else max(0, remaining) + tolerance


def explained(point: Point, level: LevelPoint) -> bool:
    """Tell whether loads are in flight whose growth is expected and, all together, fits below the level's limits."""
    needs = [need for one in point.begun if (need := needs_at_most(one, level)) is not None]
    room = level.headroom_bytes
    if not needs or not isinstance(room, Known):
        return False
    return isinstance(room.value, Unlimited) or sum(needs) <= room.value


def _cost(begun: Begun) -> tuple[Cost, int]:
    """Give the cost of the path and the bytes expected, 0 where it is no load or does not say how many."""
    operation = begun.operation
    expected = operation.bytes_expected if operation.kind is OperationKind.LOAD else None
    return COSTS.get(operation.label, _OTHER), expected or 0


def _remaining(begun: Begun, level: LevelPoint, need: float) -> int | None:
    """By the share that the load says is done; where it says none, by what the level has grown since it began."""
    done, expected = begun.operation.bytes_done, begun.operation.bytes_expected
    if done and expected:
        return int(need * (1 - done / expected))
    then, now = begun.growing_bytes.get(level.id), level.growing_bytes
    if then is None or not isinstance(now, Known):
        return None
    return int(need) - (now.value - then)
