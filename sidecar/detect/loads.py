"""What loads in flight will still add in anonymous memory, and whether that fits.

A load costs its file size times a factor of its path, in memory that reclaim cannot take: `guard.box.load_costs` holds
what each costs at least, to claim that a load cannot fit, and at most, to accept growth as explained.
"""

from __future__ import annotations

from typing import Final

from guard.box.load_costs import COSTS, OTHER, Cost
from guard.model import Known, OperationKind, Unlimited
from sidecar.history import Begun, LevelPoint, Point

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
    return COSTS.get(operation.label, OTHER), expected or 0


def _remaining(begun: Begun, level: LevelPoint, need: float) -> int | None:
    """By the share that the load says is done; where it says none, by what the level has grown since it began."""
    done, expected = begun.operation.bytes_done, begun.operation.bytes_expected
    if done and expected:
        return int(need * (1 - done / expected))
    then, now = begun.growing_bytes.get(level.id), level.growing_bytes
    if then is None or not isinstance(now, Known):
        return None
    return int(need) - (now.value - then)
