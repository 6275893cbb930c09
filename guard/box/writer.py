"""Writing the black box: a few memory stores per record; nothing here blocks, grows or waits for the sidecar.

Threads and signals: one re-entrant lock orders the stores, so no increment of a beat is lost between threads. A signal
handler that writes to the very cell its own thread was writing may cost that one record, never leave a torn one.

Access: a box has mode 0644. The sidecar runs as another uid; it gets a descriptor over the socket, and after its own
restart finds older boxes by listing the directory. Who can read the volume can read commands, file names and stacks.
"""

from __future__ import annotations

import contextlib
import errno
import re
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final

from guard.box import format as layout
from guard.box import texts
from guard.box.mapped import BoxError, Cell, MappedBox, create
from guard.box.texts import BoxAbout
from guard.model import Failure, LifeId

__all__ = ["BoxAbout", "BoxError", "BoxWriter", "OperationSlot"]

_SESSION: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST: Final = 2**63 - 1
_CODES: Final = {kind.value: code for kind, code in layout.KIND_CODES.items()}


class OperationSlot:
    """One operation in flight. Calls after `finish`, or after the box was closed, do nothing."""

    __slots__ = ("_born", "_bounds", "_box", "_bytes_done", "_cell", "_fixed", "_head", "_item")

    def __init__(self, box: BoxWriter, code: int, texts: tuple[bytes, bytes, bytes], bounds: tuple[int, int]) -> None:
        label, file, thread = texts
        self._box = box
        self._cell: Cell | None = None  # every slot was taken, or it is finished
        self._fixed = label + file + thread
        self._item = b""
        self._bytes_done = layout.NONE
        self._head = (code, len(label), len(file), len(thread))
        self._bounds = bounds  # bytes expected, milliseconds
        self._born = (0, 0)  # number, when

    def start(self, cell: Cell | None, number: int) -> None:
        """Publish it in a cell. Whoever calls holds the lock of the box."""
        self._cell = cell
        now = time.monotonic_ns()
        self._born = (number, now)
        self._store(0, now)

    def progress(self, item: str | None = None, bytes_done: int | None = None) -> None:
        """Say what is in flight and how many bytes are done since the beginning; None keeps what was said before."""
        with self._box.lock:
            if item is not None:
                self._item = layout.fit_tail(item, layout.ITEM_ROOM)
            if bytes_done is not None:
                self._bytes_done = _count(bytes_done)
            self._store(0, time.monotonic_ns())

    def finish(self) -> None:
        """Mark it done. It stays readable until its slot is needed again."""
        with self._box.lock:
            self._store(1, time.monotonic_ns())
            cell, self._cell = self._cell, None
            if cell is not None:
                self._box.free.append(cell)

    def _store(self, done: int, now_ns: int) -> None:
        """Publish the record as it is now."""
        cell = self._cell
        if cell is None:
            return
        kind, label, file, thread = self._head
        number, started = self._born
        expected, bound = self._bounds
        item = self._item
        head = layout.OPERATION.pack(
            kind, done, label, file, thread, len(item), number, started, now_ns, self._bytes_done, expected, bound
        )
        self._box.mapped.store(cell, head + self._fixed + item)


class BoxWriter:
    """The box of this process. Any thread may call; after `close` or `abandon` every method does nothing."""

    def __init__(self, mapped: MappedBox) -> None:
        self.mapped = mapped
        self.lock = threading.RLock()
        self.free = deque(Cell(layout.OPERATIONS, index) for index in range(layout.OPERATIONS.count))
        self._operations = 0
        self._beats: dict[str, _Beat] = {}
        self._failures = [_FailureCell(index) for index in range(layout.FAILURES.count)]
        self._failed = 0
        self._sigterm: Cell | None = Cell(layout.SIGTERM, 0)
        self._exit = Cell(layout.EXIT, 0)

    @classmethod
    def create(cls, directory: str, life: LifeId, about: BoxAbout) -> BoxWriter:
        """Make the box of one life in a directory (made too, if its parent exists).

        Raises:
            BoxError: it cannot be made there; the text says why and what to do.
        """
        if not _SESSION.fullmatch(life.session):
            raise BoxError(errno.EINVAL, "no black box: a session is 1 to 64 letters, digits, '-' or '_'")
        return cls(create(directory, life.session, texts.encode_about(life, about, time.time())))

    @property
    def path(self) -> str:
        """The file, named by the session."""
        return self.mapped.path

    @property
    def fd(self) -> int:
        """A read-only descriptor of the file for the hand-over; -1 once closed."""
        return self.mapped.fd

    @property
    def busy(self) -> bool:
        """Whether an operation is in flight."""
        return len(self.free) < layout.OPERATIONS.count

    def begin(
        self,
        kind: str,
        label: str,
        *,
        file: str | None = None,
        bytes_expected: int | None = None,
        at_most_seconds: float | None = None,
    ) -> OperationSlot:
        """Open a slot for an operation of this thread. Nested and parallel operations get slots of their own.

        With all 32 slots in flight the operation goes unrecorded: the box never grows. `kind` is an `OperationKind`,
        or its value.
        """
        slot = OperationSlot(
            self,
            _CODES[kind],
            (
                layout.fit_head(label, layout.LABEL_ROOM),
                layout.fit_tail(file, layout.FILE_ROOM) if file else b"",
                layout.fit_head(threading.current_thread().name, layout.THREAD_ROOM),
            ),
            (_count(bytes_expected), _milliseconds(at_most_seconds)),
        )
        with self.lock:
            self._operations += 1
            slot.start(self.free.popleft() if self.free else None, self._operations)
        return slot

    def beat(self, name: str, n: int = 1) -> None:
        """Add n to a named counter. The first 32 names of a process are kept, later ones are dropped."""
        with self.lock:
            beat = self._beats.get(name)
            if beat is None:
                if len(self._beats) == layout.BEATS.count:
                    return
                beat = self._beats[name] = _Beat(len(self._beats), name)
            beat.count = min(beat.count + (n if type(n) is int else int(n)), _MOST)  # a tensor or numpy's is not kept
            head = layout.BEAT.pack(beat.count, time.monotonic_ns(), len(beat.name))
            self.mapped.store(beat.cell, head + beat.name)

    def fail(self, failure: Failure, *, instead_of: int = 0) -> int:
        """Keep a failure. It replaces the oldest, but the newest fatal one is replaced by no other.

        Args:
            failure: what happened.
            instead_of: the number of an earlier record of the same failure; it goes once the new one is whole.

        Returns:
            The number of this record, from 1.
        """
        payload = texts.encode_failure(failure)
        with self.lock:
            self._failed += 1
            kept = max(self._failures, key=lambda cell: cell.fatal)
            open_to = [cell for cell in self._failures if not (cell is kept and cell.fatal)]
            target = min(open_to, key=lambda cell: cell.number)
            target.number = self._failed
            target.fatal = self._failed if failure.fatal else 0
            self.mapped.store(target.cell, payload)
            for cell in self._failures:
                if instead_of and cell.number == instead_of:
                    cell.number = cell.fatal = 0
                    self.mapped.clear(cell.cell)
            return self._failed

    def sigterm(self) -> None:
        """Note the first SIGTERM."""
        with self.lock:
            cell, self._sigterm = self._sigterm, None
            if cell is not None:
                self.mapped.store(cell, layout.SIGTERM_MARK.pack(time.time_ns()))

    def exit(self, status: int | None) -> None:
        """Note the orderly exit; the last call counts. `status` is None where it is not known."""
        known = status is not None
        mark = layout.EXIT_MARK.pack(time.time_ns(), time.monotonic_ns(), status if status is not None else 0, known)
        with self.lock:
            self.mapped.store(self._exit, mark)

    def close(self) -> None:
        """Unmap. The file stays for the sidecar."""
        with self.lock:
            self.mapped.close()

    def remove(self) -> None:
        """Unmap and remove the file: this process has nothing to tell."""
        self.close()
        with contextlib.suppress(OSError):
            Path(self.path).unlink()

    def abandon(self) -> None:
        """In a forked child: unmap the parent's box without writing to it, then make a new one.

        Takes no lock that another thread of the parent may have held at the fork.
        """
        self.lock = threading.RLock()
        self.mapped.close()


class _Beat:
    """A counter and its cell."""

    __slots__ = ("cell", "count", "name")

    def __init__(self, index: int, name: str) -> None:
        self.cell = Cell(layout.BEATS, index)
        self.count = 0
        self.name = layout.fit_head(name, layout.BEAT_NAME_ROOM)


class _FailureCell:
    """A failure's cell: the number of the failure in it, again in `fatal` if that one was fatal; 0 is none."""

    __slots__ = ("cell", "fatal", "number")

    def __init__(self, index: int) -> None:
        self.cell = Cell(layout.FAILURES, index)
        self.number = 0
        self.fatal = 0


def _count(value: int | None) -> int:
    """A count as the signed field holds it."""
    if value is None:
        return layout.NONE
    count = int(value)
    return count if 0 <= count <= _MOST else 0 if count < 0 else _MOST


def _milliseconds(seconds: float | None) -> int:
    """A duration as the signed field holds it; one without an end is no bound."""
    try:
        return layout.NONE if seconds is None else _count(int(seconds * 1000))
    except (OverflowError, ValueError):  # infinite, or no number
        return layout.NONE
