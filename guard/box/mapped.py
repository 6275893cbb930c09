"""A mapped box file: how it comes to be, and the one way to store a record in it.

Creation follows one order, so that a box is whole or absent: temporary name, `posix_fallocate` (a full tmpfs answers
ENOSPC here; a sparse file would answer SIGBUS at the first store), map, touch every page, first bytes, rename.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
from pathlib import Path
from typing import Final

from guard.box import format as layout
from guard.box.folder import make_folder
from guard.box.prune import hold, prune

SUFFIX: Final = ".box"
_PAGE: Final = 4096
_MODE: Final = 0o644
_HINTS: Final = {
    errno.ENOSPC: "the volume is full: free space or raise its size limit (a box takes 60 KiB)",
    errno.EDQUOT: "the quota is used up: raise it (a box takes 60 KiB)",
    errno.EROFS: "the volume is read-only: mount the shared directory writable",
    errno.EACCES: "this user may not write there: make the shared directory writable for the server's user",
    errno.EPERM: "this user may not write there: make the shared directory writable for the server's user",
    errno.ENOENT: "the shared directory does not exist: mount the volume there, or set OOMGUARD_DIR",
    errno.ENOTDIR: "a part of this path is not a directory: set OOMGUARD_DIR to the shared directory",
    errno.EEXIST: "a box of this session is there already: a session must be made once a process",
}


class BoxError(OSError):
    """The box cannot be made. The text says why and what to do; the server can run without it."""


class Cell:
    """One cell of a mapped box and the sequence it published last."""

    __slots__ = ("_buffers", "_word", "sequence")

    def __init__(self, cells: layout.Cells, index: int) -> None:
        self._buffers = tuple(cells.buffer(index, sequence) for sequence in range(cells.copies))
        self._word = cells.cell(index) // layout.WORD.size
        self.sequence = 0

    def store(self, view: mmap.mmap, words: memoryview, payload: bytes) -> None:
        """Fill the buffer that is not published, then publish it with one aligned 8-byte store."""
        buffers = self._buffers
        sequence = self.sequence + 1
        if len(buffers) == 1:
            words[self._word] = 0  # the only buffer: nothing is published while it changes
        raw = layout.encode_buffer(sequence, payload)
        at = buffers[sequence % len(buffers)]
        view[at : at + len(raw)] = raw
        words[self._word] = sequence
        self.sequence = sequence

    def clear(self, words: memoryview) -> None:
        """Publish nothing, as before the first store."""
        words[self._word] = 0


class MappedBox:
    """A box file in memory. `fd` is read-only, for the hand-over. After `close` a store does nothing.

    Invariant: the file at `path` is whole from the moment it has that name, and `SIZE` bytes long until it is removed.
    """

    def __init__(self, path: str, fd: int, view: mmap.mmap) -> None:
        self.path = path
        self.fd = fd
        self._view: mmap.mmap | None = view
        self._words = memoryview(view).cast("Q")

    @property
    def open(self) -> bool:
        """Whether stores reach the file."""
        return self._view is not None

    def store(self, cell: Cell, payload: bytes) -> None:
        """Publish a payload in a cell."""
        view = self._view
        if view is not None:
            cell.store(view, self._words, payload)

    def clear(self, cell: Cell) -> None:
        """Take a cell's payload back."""
        if self._view is not None:
            cell.clear(self._words)

    def close(self) -> None:
        """Unmap and close, touching no byte of the file."""
        view, self._view = self._view, None
        if view is None:
            return
        self._words.release()
        with contextlib.suppress(
            BufferError
        ):  # after a fork in the middle of a store: the mapping ends with the process
            view.close()
        fd, self.fd = self.fd, -1
        os.close(fd)


def create(directory: str, session: str, about: bytes) -> MappedBox:
    """Make `directory/session.box` with its `about` payload.

    Raises:
        BoxError: it cannot be made there; nothing is left behind.
    """
    if sys.byteorder != "little":
        raise BoxError(errno.ENOTSUP, "no black box: it is written on little-endian machines only")
    path = Path(directory, session + SUFFIX)
    temporary = Path(directory, f".{session}.new")
    try:
        make_folder(directory)
        prune(path.parent, SUFFIX)
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        view = _allocate(temporary)
        try:
            _write_first(view, about)
            fd = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            temporary.rename(path)
        except BaseException:
            view.close()
            temporary.unlink()
            raise
    except OSError as exc:
        hint = _HINTS.get(exc.errno or 0, "the server runs without a black box")
        raise BoxError(exc.errno, f"no black box in {directory}: {exc.strerror}; {hint}") from exc
    return MappedBox(str(path), fd, view)


def _allocate(path: Path) -> mmap.mmap:
    """A new file of `SIZE` bytes with every block reserved and every page present, mapped shared."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    try:
        os.fchmod(fd, _MODE)
        hold(fd)
        os.posix_fallocate(fd, 0, layout.SIZE)
        view = mmap.mmap(fd, layout.SIZE)  # keeps a copy of the descriptor, and with it the lock
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(fd)
    for page in range(0, layout.SIZE, _PAGE):
        view[page] = 0
    return view


def _write_first(view: mmap.mmap, about: bytes) -> None:
    """Prelude and the `about` cell."""
    with memoryview(view).cast("Q") as words:
        Cell(layout.ABOUT, 0).store(view, words, about)
    view[: layout.PRELUDE.size] = layout.PRELUDE.pack(layout.MAGIC, layout.MAJOR, layout.MINOR, layout.SIZE)
