"""Old boxes make room: a directory keeps the newest ones of processes that have ended, so it cannot fill the volume.

Whether a process has ended is asked of the kernel, not of a pid, which may be of another namespace: the writer's
mapping holds a shared flock(2) for its life. Where the file system has no locks every box counts as alive and stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

KEPT: Final = 64
"""Boxes that may stay, 4 MB in all. A server with helpers that come and go leaves one for each."""
FAULTS_SUFFIX: Final = ".faults"
"""Of the traces of native faults (`guard.hooks.native_faults`), one a box; without its box nobody reads one."""
_HALF_MADE: Final = ".*.new"
_HALF_MADE_SECONDS: Final = 60.0
"""Making a box takes a millisecond; a name that is older was left behind by a kill."""

_OPEN_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def hold(fd: int) -> None:
    """Mark the file as one whose process lives, until the last copy of this descriptor is closed."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def is_held(path: str) -> bool | None:
    """Tell whether the process that made this file lives; None where the file or its file system cannot tell."""
    try:
        fd = os.open(path, _OPEN_FLAGS)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(fd)


def prune(directory: Path, suffix: str) -> None:
    """Remove the oldest boxes of ended processes beyond `KEPT`, and what kills left half made. Best effort."""
    with contextlib.suppress(OSError):
        latest = time.time() - _HALF_MADE_SECONDS
        for path in directory.glob(_HALF_MADE):
            if path.stat().st_mtime < latest:
                _remove_if_ended(path)
        boxes = list(directory.glob(f"*{suffix}"))
        for trace in directory.glob(f"*{FAULTS_SUFFIX}"):
            if not trace.with_suffix(suffix).exists():
                trace.unlink()
        excess = len(boxes) - KEPT
        if excess > 0:
            for path in _oldest_first(boxes):
                excess -= _remove_if_ended(path)
                if excess <= 0:
                    break


def _oldest_first(boxes: list[Path]) -> Iterator[Path]:
    """By time of making: stores through a mapping do not move a tmpfs file's time."""
    aged = []
    for path in boxes:
        with contextlib.suppress(OSError):  # removed meanwhile
            aged.append((path.stat().st_mtime, path))
    return (path for _, path in sorted(aged))


def _remove_if_ended(path: Path) -> bool:
    """Whether it could be removed."""
    try:
        fd = os.open(path, _OPEN_FLAGS)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(fd)
    except OSError:
        return False
    return True
