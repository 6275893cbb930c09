"""What makes one life of a process unlike any other: the boot it belongs to and the tick at which it started."""

from __future__ import annotations

from typing import Final

from guard.kernel.reader import Reader
from guard.model import Known, Reading, Unknown, Why

BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
_BOOT_ID_LENGTH: Final = 36
_START: Final = 19  # index behind the command in /proc/PID/stat: field 22 of proc_pid_stat(5)


def boot_id(reader: Reader) -> Reading[str]:
    """Give the id that the kernel drew at boot, 36 characters (Documentation/admin-guide/sysctl/kernel.rst, random)."""
    data = reader.read(BOOT_ID_PATH, 256)
    if isinstance(data, Unknown):
        return data
    text = data.value.decode("ascii", "replace").strip()
    if len(text) != _BOOT_ID_LENGTH:
        return Unknown(Why.MALFORMED, BOOT_ID_PATH, None, repr(text))
    return Known(text)


def start_ticks(reader: Reader, pid: int | None = None) -> Reading[int]:
    """Give the start of a process (the caller's own by default) in clock ticks since boot, field 22 of its stat.

    Read here and not with `procfs`: every server with a guard asks this at its start, and the values of `procfs` cost
    more to define (7 ms) than all else that it needs then.
    """
    path = f"/proc/{'self' if pid is None else pid}/stat"
    data = reader.read(path)
    if isinstance(data, Unknown):
        return data
    words = data.value.rpartition(b")")[2].split()
    if len(words) <= _START or not words[_START].isdigit() or data.value[-1:] != b"\n":
        return Unknown(Why.MALFORMED, path, None, repr(data.value[:200]))
    return Known(int(words[_START]))
