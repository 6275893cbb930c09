"""/proc/PID/mountinfo (proc_pid_mountinfo(5))."""

from __future__ import annotations

import re
from typing import Final

from guard.kernel.flat import malformed
from guard.kernel.values import Mount
from guard.model import Known, Reading

# Blank, tab, newline, backslash and "#" are printed as three octal digits (fs/proc_namespace.c, mangle_path).
_ESCAPE: Final = re.compile(rb"\\([0-3][0-7]{2})")
_ROOT, _POINT, _OPTIONS, _OPTIONAL = 3, 4, 5, 6
_AFTER_DASH: Final = 3  # type, source, super options


def parse(data: bytes, where: str) -> Reading[tuple[Mount, ...]]:
    """Parse into mounts, in the order of the file (later ones may cover earlier ones).

    Lines of another shape are left out. MALFORMED if no line can be read.
    """
    mounts = [mount for line in data.split(b"\n")[:-1] if (mount := _parse_line(line.split(b" "))) is not None]
    return Known(tuple(mounts)) if mounts else malformed(data, where)


def _parse_line(words: list[bytes]) -> Mount | None:
    try:
        dash = words.index(b"-", _OPTIONAL)  # any number of optional fields (shared:1, master:2) come before it
    except ValueError:
        return None
    if len(words) < dash + 1 + _AFTER_DASH:
        return None
    return Mount(
        root=_text(words[_ROOT]),
        mount_point=_text(words[_POINT]),
        fs_type=_text(words[dash + 1]),
        options=tuple(_text(words[_OPTIONS]).split(",")),
        super_options=tuple(_text(words[dash + 3]).split(",")),
    )


def _text(word: bytes) -> str:
    if b"\\" in word:
        word = _ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), word)
    return word.decode("utf-8", "surrogateescape")


def covering(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """Find the mount that `path` lies on: the longest mount point above it, the last one where several are stacked."""
    best: Mount | None = None
    for mount in mounts:
        point = mount.mount_point.rstrip("/")
        if (path == point or path.startswith(point + "/")) and (
            best is None or len(point) >= len(best.mount_point.rstrip("/"))
        ):
            best = mount
    return best


def is_lxcfs(mounts: tuple[Mount, ...], path: str) -> bool:
    """Tell whether LXCFS serves `path` (e.g. /proc/meminfo), which then speaks of the container, not of the node."""
    mount = covering(mounts, path)
    return mount is not None and mount.fs_type == "fuse.lxcfs"
