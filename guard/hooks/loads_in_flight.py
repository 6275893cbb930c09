"""The loads and moves in flight: who owns the mark, and what is done so far.

Rules
    * The outermost call owns the mark. What it calls in turn, in this thread or for its files in others, adds to it
      and opens none of its own; so no byte is expected twice.
    * A load that is a block of the host's own code (`with safe_open(...)`) owns only what concerns its file: whatever
      else the host does in there is work of its own.
    * A tensor is done when the next one is asked for: what the caller does with it (copy, cast, move) is the dear part.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guard.fence import fence, swallowed
from guard.hooks import load_check
from guard.hooks.progress_bar import Bar, bar_for
from guard.refusal import WouldNotFit

if TYPE_CHECKING:
    from guard.box.writer import BoxWriter, OperationSlot
    from guard.hooks.safetensors_header import Shard
    from guard.keeper import Keeper

_local = threading.local()
_open: list[Load] = []


class Load:
    """One mark that is owned, with what was done under it."""

    __slots__ = (
        "_bar",
        "_before",
        "_done",
        "_expected",
        "_lock",
        "_next",
        "_pid",
        "_slot",
        "box",
        "copies",
        "path",
        "shard",
        "whole",
    )

    def __init__(self, box: BoxWriter | None, slot: OperationSlot, work: Work, bar: Bar | None) -> None:
        self.box = box
        self.path = work.path
        self.shard: Shard | None = None  # its header, where somebody has read it
        self.copies = work.copies
        self.whole = work.whole
        self._expected = work.expected
        self._slot: OperationSlot | None = slot
        self._bar = bar
        self._lock = threading.RLock()  # a signal handler of the host may load something too
        self._pid = os.getpid()
        self._done = 0
        self._next = 0  # bytes that are done once the next item begins
        self._before: Load | None = getattr(_local, "load", None)

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._slot is None

    def turn(self, item: str | None, size: int = 0, file: str | None = None) -> None:
        """Say what is in flight now, and how many bytes will be done with it; None keeps the item.

        Args:
            item: a tensor, a storage or a module.
            size: its bytes; 0 where they are counted elsewhere.
            file: where it is read from, said before its name if that is not the file of the whole.
        """
        if item is not None and file is not None and file != self.path:
            item = f"{os.path.basename(file)}: {item}"  # noqa: PTH119 - no path object is made of a host's name
        if not self._is_ours():
            return
        with self._lock:
            self._done += self._next
            self._next = size
            if self._expected is not None:  # a tensor that is read twice is not more than the whole
                self._done = min(self._done, self._expected)
            if self._slot is None:
                return
            self._slot.progress(item, self._done)
            if self._bar is not None:
                with fence("progress bar"):
                    self._bar.show(item, self._done)

    def expect(self, size: int) -> None:
        """Count more bytes for what is in flight."""
        if self._is_ours():
            with self._lock:
                self._next += size

    def complete(self) -> None:
        """Count all of it as done: the call has returned."""
        if self._expected is not None and self._is_ours():
            with self._lock:
                self._next = max(0, self._expected - self._done)

    def _is_ours(self) -> bool:
        """Whether this process began it. In a forked child it is the parent's, and a thread there may hold the lock."""
        return self._pid == os.getpid()

    def covers(self, path: str) -> bool:
        """Whether a file is its own, or lies in its folder."""
        return self.path is not None and (path == self.path or path.startswith(self.path + "/"))

    def finish(self) -> None:
        """End the mark. What was in flight last counts as done."""
        with fence("load"):
            self.turn(None)
        slot, self._slot = self._slot, None
        if self in _open:
            _open.remove(self)
        if getattr(_local, "load", None) is self:
            _local.load = self._before
        if slot is not None:
            slot.finish()
        if self._bar is not None:
            self._bar.clear()


class Part:
    """A call within a load: it ends nothing."""

    __slots__ = ("load",)

    def __init__(self, load: Load) -> None:
        self.load = load

    def finish(self) -> None:
        """Leave the mark to its owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to be marked."""

    label: str  # what does it, see `guard.box.load_costs`
    kind: str = "load"  # or "move"
    path: str | None = None  # the file or folder, absolute
    expected: int | None = None  # bytes of the whole
    surely: int | None = None  # host memory that it takes in any case; None: what its label costs at least
    copies: bool = False  # maps its files and then copies: bytes count when they are copied
    whole: bool = True  # False: a block of the host's own code
    bar: bool = True  # whether people may see a progress bar; not where the library shows its own


def begin(keeper: Keeper, work: Work) -> Load | None:
    """Open a mark and make it the one of this thread; None where there is no box.

    Raises:
        WouldNotFit: it would not, and OOMGUARD_PREFLIGHT=raise.
    """
    if work.kind == "load":
        _look(work)
    slot = keeper.begin(work.kind, work.label, file=work.path, bytes_expected=work.expected)
    if slot is None:
        return None
    bar: Bar | None = None
    if work.bar:
        with fence("progress bar"):
            bar = bar_for(work.path or work.label, work.expected)
    load = Load(keeper.box, slot, work, bar)
    _local.load = load
    _open.append(load)
    return load


def _look(work: Work) -> None:
    """See whether it fits; where that fails the mark is kept all the same. Raises: `WouldNotFit`."""
    try:
        load_check.check(work.label, work.path, work.expected, work.surely)
    except WouldNotFit:
        raise
    except Exception as error:
        if not swallowed("preflight", error):
            raise


def enclosing(keeper: Keeper, path: str | None = None) -> Load | None:
    """Give the load that work in this thread belongs to, on `path` if it is on a file; None if it stands for itself."""
    load: Load | None = getattr(_local, "load", None)
    while load is not None and (load.ended or load.box is not keeper.box):
        load = load._before  # noqa: SLF001 - same module
    if load is not None and (load.whole or path == load.path):
        return load
    if path is None:
        return None
    for other in tuple(_open):
        if other.whole and other.box is keeper.box and other.covers(path):
            return other
    return None


def completed(mark: object, _result: object) -> None:
    """Count a load as done whose call has returned; for `marked`."""
    if isinstance(mark, Load):
        mark.complete()


def absolute(path: object) -> str | None:
    """Give a path as it is compared and recorded; None for what is no path."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return None
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - no path object is made of a host's name
