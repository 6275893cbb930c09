"""The only place that opens kernel files. Everything else receives bytes, or the reason why there are none.

Rules
    * Nothing here raises for what the system answers: every errno becomes an `Unknown`.
    * Nothing here blocks: files open with O_NONBLOCK, so a FIFO in place of a file costs nothing.
    * Nothing here reads without a bound.
    * A `Reader` with a root other than "/" (a recorded tree) never leaves it, by ".." or by a symbolic link.
    * Nothing here makes a `pathlib.Path`: it interns each part of a path (CPython 3.11, Lib/pathlib.py, `_parse_args`),
      and the table of interned strings does not take back the place of those that died before it has doubled to 2 MiB.
"""

# ruff: noqa: PTH115, PTH116, PTH120, PTH208 - the last rule above

from __future__ import annotations

import errno
import os
from functools import cache
from typing import TYPE_CHECKING, Final

from guard.model import Known, Reading, Unknown, Why

if TYPE_CHECKING:
    import ctypes

DEFAULT_LIMIT_BYTES: Final = 1 << 20
CGROUP_MAGIC: Final = 0x27E0EB  # include/uapi/linux/magic.h
CGROUP2_MAGIC: Final = 0x63677270
PROC_MAGIC: Final = 0x9FA0

_OPEN_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# Most kernel files fit one read of this size; a bigger one only costs a bigger allocation each time.
_CHUNK_BYTES: Final = 16 << 10
_NUMBER_BYTES: Final = 32  # 20 digits and a newline
_STATFS_BYTES: Final = 512  # struct statfs is at most 120 bytes; f_type is its first word on every Linux port but s390

_WHY_OF_ERRNO: Final = {
    errno.ENOENT: Why.MISSING,
    errno.ENOTDIR: Why.MISSING,
    errno.EACCES: Why.DENIED,
    errno.EPERM: Why.DENIED,
    errno.ENODEV: Why.GONE,
    errno.ESRCH: Why.GONE,
    errno.EOPNOTSUPP: Why.UNSUPPORTED,
}


def unknown_from(exc: OSError, where: str) -> Unknown:
    """Say what an errno means for a kernel file."""
    why = _WHY_OF_ERRNO.get(exc.errno or 0, Why.FAILED)
    name = errno.errorcode.get(exc.errno or 0, "")
    return Unknown(why, where, exc.errno, name)


class KeptFile:
    """An open kernel file that is read again and again from its start. The owner closes it.

    Attributes:
        fd: the descriptor, -1 once closed.
        where: the path or name for messages.
    """

    __slots__ = ("fd", "where")

    def __init__(self, fd: int, where: str) -> None:
        self.fd = fd
        self.where = where

    def __repr__(self) -> str:
        """Name the file and the descriptor."""
        return f"KeptFile({self.fd}, {self.where!r})"

    def read(self, limit: int = DEFAULT_LIMIT_BYTES) -> Reading[bytes]:
        """Read the whole file, at most `limit` bytes; a longer one is MALFORMED, never cut.

        A short read is not the end: a seq_file hands out whole records that fit its buffer (fs/seq_file.c), so
        only an empty read ends the loop. That second read is cheap, the kernel does not format the file again.
        """
        try:
            data = os.pread(self.fd, min(limit + 1, _CHUNK_BYTES), 0)
            while len(data) <= limit:
                more = os.pread(self.fd, min(limit + 1 - len(data), _CHUNK_BYTES), len(data))
                if not more:
                    return Known(data)
                data += more
        except OSError as exc:
            return unknown_from(exc, self.where)
        return Unknown(Why.MALFORMED, self.where, None, f"longer than {limit} bytes")

    def read_number(self) -> int | None:
        """Read a file that holds one number, by one call; None for anything else, and `read` says what it is.

        A seq_file gives a record of this length whole or not at all, so there is no rest to read.
        """
        try:
            return int(os.pread(self.fd, _NUMBER_BYTES, 0))
        except (OSError, ValueError):
            return None

    def read_next(self, limit: int = 8192) -> Reading[bytes]:
        """Read on from the file's position: one record of /dev/kmsg. Empty when there is nothing new.

        EPIPE (FAILED) says that records were overwritten before they were read; the next call goes on after the gap.
        """
        try:
            return Known(os.read(self.fd, limit))
        except BlockingIOError:
            return Known(b"")
        except OSError as exc:
            return unknown_from(exc, self.where)

    def seek_end(self) -> Reading[int]:
        """Skip what is there already; for /dev/kmsg the next read waits for new records."""
        try:
            return Known(os.lseek(self.fd, 0, os.SEEK_END))
        except OSError as exc:
            return unknown_from(exc, self.where)

    def identity(self) -> Reading[tuple[int, int]]:
        """Device and inode. The file's, not its directory's."""
        try:
            found = os.fstat(self.fd)
        except OSError as exc:
            return unknown_from(exc, self.where)
        return Known((found.st_dev, found.st_ino))

    def fs_magic(self) -> Reading[int]:
        """Tell the file system it lies on by statfs(2) f_type: `CGROUP_MAGIC`, `CGROUP2_MAGIC`, `PROC_MAGIC`, other."""
        import ctypes  # some milliseconds; only the receiver of foreign descriptors asks

        buffer = ctypes.create_string_buffer(_STATFS_BYTES)
        if _libc().fstatfs(self.fd, buffer) != 0:
            number = ctypes.get_errno()
            return unknown_from(OSError(number, os.strerror(number)), self.where)
        return Known(ctypes.c_ulong.from_buffer(buffer).value)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


@cache
def _libc() -> ctypes.CDLL:
    """Open it once: each `CDLL` makes classes of its own, 6 KiB that only a full collection takes back."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


class Reader:
    """Reads kernel files below `root`. Paths are the ones of a live system, e.g. "/proc/meminfo"."""

    __slots__ = ("_root", "root")

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self._root = "" if os.path.realpath(root) == "/" else os.path.realpath(root)

    def read(self, path: str, limit: int = DEFAULT_LIMIT_BYTES) -> Reading[bytes]:
        """Open, read whole and close; see `KeptFile.read`."""
        kept = self.keep(path)
        if isinstance(kept, Unknown):
            return kept
        try:
            return kept.read(limit)
        finally:
            kept.close()

    def keep(self, path: str) -> KeptFile | Unknown:
        """Open for many reads. The caller closes it."""
        full = self._full(path)
        if isinstance(full, Unknown):
            return full
        try:
            return KeptFile(os.open(full, _OPEN_FLAGS), path)
        except OSError as exc:
            return unknown_from(exc, path)

    def listdir(self, path: str) -> Reading[tuple[str, ...]]:
        """Give the names in a directory, sorted."""
        full = self._full(path)
        if isinstance(full, Unknown):
            return full
        try:
            return Known(tuple(sorted(os.listdir(full))))
        except OSError as exc:
            return unknown_from(exc, path)

    def readlink(self, path: str) -> Reading[str]:
        """Give the target of a symbolic link as it is written."""
        full = self._full(path, follow=False)
        if isinstance(full, Unknown):
            return full
        try:
            return Known(os.readlink(full))
        except OSError as exc:
            return unknown_from(exc, path)

    def identity(self, path: str) -> Reading[tuple[int, int]]:
        """Device and inode of a file or directory."""
        full = self._full(path)
        if isinstance(full, Unknown):
            return full
        try:
            found = os.stat(full)
        except OSError as exc:
            return unknown_from(exc, path)
        return Known((found.st_dev, found.st_ino))

    def _full(self, path: str, *, follow: bool = True) -> str | Unknown:
        """Put `path` below the root, ".." undone, and refuse what leads out of it."""
        try:
            possible = b"\0" not in os.fsencode(path)
        except UnicodeEncodeError:
            possible = False
        if not possible:
            return Unknown(Why.MISSING, path, None, "no file can have this name")
        full = self._root + os.path.normpath("/" + path.lstrip("/"))
        if self._root:
            real = os.path.realpath(full if follow else os.path.dirname(full))
            if not (real + "/").startswith(self._root + "/"):
                return Unknown(Why.DENIED, path, None, "leads out of the recorded tree")
        return full
