"""Which safetensors file each thread is loading, so that the outer call and the file it opens share one mark."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guard.box.writer import BoxWriter, OperationSlot
    from guard.hooks.safetensors_header import Shard
    from guard.keeper import Keeper

_local = threading.local()


class LoadMark:
    """A load in flight in this thread. A borrowed one leaves ending it to its owner."""

    __slots__ = ("_before", "_owner", "_slot", "box", "path", "progress", "shard")

    def __init__(self, box: BoxWriter | None, slot: OperationSlot, path: str, shard: Shard) -> None:
        self._slot = slot
        self.progress = slot.progress
        self.box = box
        self._owner = True
        self._before: LoadMark | None = None
        self.path = path
        self.shard = shard

    def borrowed(self) -> LoadMark:
        """Give a mark on the same slot that does not end it."""
        other = LoadMark(self.box, self._slot, self.path, self.shard)
        other._owner = False
        return other

    def finish(self) -> None:
        """End the load."""
        if not self._owner:
            return
        if getattr(_local, "load", None) is self:
            _local.load = self._before
        self._slot.finish()

    def enter(self) -> None:
        """Make it the load of this thread."""
        self._before = getattr(_local, "load", None)
        _local.load = self


def begin_load(keeper: Keeper, label: str, path: str, shard: Shard) -> LoadMark | None:
    """Mark a load and make it the current one of this thread; None where there is no box."""
    slot = keeper.begin("load", label, file=path, bytes_expected=shard.total_bytes)
    if slot is None:
        return None
    mark = LoadMark(keeper.box, slot, path, shard)
    mark.enter()
    return mark


def current_load(keeper: Keeper, path: str) -> LoadMark | None:
    """Give this thread's load in flight if it is of this file, and in the box of today (not the one before a fork)."""
    mark: LoadMark | None = getattr(_local, "load", None)
    return mark if mark is not None and mark.path == path and mark.box is keeper.box else None
