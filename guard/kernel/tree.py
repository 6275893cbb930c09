"""Record the kernel files of a process into a folder that a `Reader` takes as its root: what one attaches to a report.

Written are the files that `locate` and the parsers need, below DIR/proc and at the place of each level (usually
DIR/sys/fs/cgroup), and DIR/origin.toml. Never written: environ, cmdline, and mounts that are neither cgroup nor proc.
A file that could not be read is named in origin.toml with the reason; one that is missing is simply not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from guard.kernel import memcg, mountinfo
from guard.kernel.identity import BOOT_ID_PATH
from guard.kernel.locate import locate
from guard.kernel.reader import Reader
from guard.kernel.values import CgroupVersion, LevelPath
from guard.model import Known, Unknown, Why

_PROCESS_FILES: Final = ("status", "stat", "statm", "io")
_NODE_FILES: Final = (
    *("/proc/meminfo", "/proc/vmstat", "/proc/sys/kernel/osrelease"),
    *("/proc/pressure/memory", "/proc/pressure/io", "/proc/pressure/cpu"),
)
# Beside what the parsers read: marks of the root, and settings that explain the numbers.
_MORE_LEVEL_FILES: Final[Mapping[CgroupVersion, tuple[str, ...]]] = {
    CgroupVersion.V2: ("cgroup.events", "cgroup.type", "cgroup.controllers", "memory.oom.group", "memory.swap.events"),
    CgroupVersion.V1: (
        "cgroup.sane_behavior",
        "memory.use_hierarchy",
        "memory.swappiness",
        "memory.soft_limit_in_bytes",
    ),
}
_FS_TYPES_KEPT: Final = ("cgroup", "cgroup2", "proc", "fuse.lxcfs")
_DISTRO_PATH: Final = "/etc/os-release"
_IDS: Final = re.compile(rb"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{32,64}(?![0-9a-f])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was recorded: how many files, what could not be read and why, and the origin file."""

    files: int
    errors: Mapping[str, str]
    origin: Path


@dataclass(slots=True)
class _Recorder:
    """One recording in progress."""

    reader: Reader
    destination: Path
    redact: bool
    files: int = 0
    errors: dict[str, str] = field(default_factory=dict)
    stand_ins: dict[bytes, bytes] = field(default_factory=dict)

    def copy(self, source: str, target: str) -> None:
        """Copy one file as it is."""
        data = self.reader.read(source)
        if isinstance(data, Known):
            self.write(target, data.value)
        elif data.why is not Why.MISSING:
            self.errors[self.hide(target.encode()).decode()] = str(data)

    def write(self, target: str, data: bytes) -> None:
        path = self.destination / self.hide(target.encode()).decode().lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.files += 1

    def hide(self, text: bytes) -> bytes:
        """Put stand-ins of the same shape for container ids and pod uids, the same one each time."""
        return _IDS.sub(self._stand_in, text) if self.redact else text

    def _stand_in(self, found: re.Match[bytes]) -> bytes:
        number = f"{len(self.stand_ins) + 1:04x}".encode()
        blank = re.sub(rb"[0-9a-f]", b"0", found[0])[: -len(number)] + number
        return self.stand_ins.setdefault(found[0], blank)


def record(
    reader: Reader, destination: str, pid: int | None = None, *, command: str = "", redact: bool = False
) -> Recorded:
    """Record a process (the caller's own by default) as `proc/self` of a new tree in `destination`.

    Args:
        reader: where to read from.
        destination: a folder that is empty or does not exist.
        pid: another process; its levels are found as `locate` finds them.
        command: what the user typed, for origin.toml.
        redact: replace container ids and pod uids.

    Raises:
        OSError: there is no such process; `destination` has something in it, or cannot be written.
    """
    if not destination:
        raise FileNotFoundError("the folder has no name")
    if pid is not None and isinstance(reader.identity(f"/proc/{pid}"), Unknown):
        raise ProcessLookupError(f"there is no process {pid} here")
    target = Path(destination)
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise FileExistsError(f"{destination}: not empty; give a folder that does not exist yet")
    recorder = _Recorder(reader, target, redact)
    process = "self" if pid is None else str(pid)
    for path in _NODE_FILES if redact else (*_NODE_FILES, BOOT_ID_PATH):
        recorder.copy(path, path)
    for name in _PROCESS_FILES:
        recorder.copy(f"/proc/{process}/{name}", f"/proc/self/{name}")
    mode = _record_levels(recorder, pid)
    origin = target / "origin.toml"
    origin.write_text(_origin(recorder, command, mode), encoding="utf-8")
    return Recorded(files=recorder.files, errors=recorder.errors, origin=origin)


def _record_levels(recorder: _Recorder, pid: int | None) -> str:
    """Record membership, mounts and every level; return the cgroup mode in words."""
    process = "self" if pid is None else str(pid)
    chain = locate(recorder.reader, pid)
    prefix, mounts_of = "", "self"
    if isinstance(chain, Unknown):
        recorder.errors["locate"] = recorder.hide(str(chain).encode()).decode()
    elif pid is not None and chain.value.levels[0].memory_dir.startswith(f"/proc/{pid}/root/"):
        prefix, mounts_of = f"/proc/{pid}/root", process
    _copy_lines(recorder, f"/proc/{process}/cgroup", "/proc/self/cgroup")
    fs_types = _copy_lines(recorder, f"/proc/{mounts_of}/mountinfo", "/proc/self/mountinfo")
    if isinstance(chain, Unknown):
        return "not found"
    for level in chain.value.levels:
        for source in _level_paths(level):
            recorder.copy(source, source.removeprefix(prefix))
    if chain.value.levels[0].version is CgroupVersion.V2:
        return "v2"
    return "hybrid" if "cgroup2" in fs_types else "v1"


def _level_paths(level: LevelPath) -> Iterator[str]:
    directories = {memcg.MEMORY: level.memory_dir, memcg.UNIFIED: level.unified_dir, memcg.CPU: level.cpu_dir}
    for file in memcg.FILES[level.version]:
        directory = directories[file.tree]
        if directory is not None:
            yield f"{directory}/{file.name}"
    for name in _MORE_LEVEL_FILES[level.version]:
        yield f"{level.memory_dir}/{name}"


def _copy_lines(recorder: _Recorder, source: str, target: str) -> set[str]:
    """Copy membership or mounts, ids hidden if asked for, without mounts of other kinds; return the mounts' types."""
    data = recorder.reader.read(source)
    if isinstance(data, Unknown):
        recorder.errors[target] = str(data)
        return set()
    kept, fs_types = [], set()
    for line in data.value.splitlines(keepends=True):
        mounts = mountinfo.parse(line, source)
        if isinstance(mounts, Known):
            if mounts.value[0].fs_type not in _FS_TYPES_KEPT:
                continue
            fs_types.add(mounts.value[0].fs_type)
        kept.append(line)
    recorder.write(target, recorder.hide(b"".join(kept)))
    return fs_types


def _origin(recorder: _Recorder, command: str, mode: str) -> str:
    release = recorder.reader.read("/proc/sys/kernel/osrelease")
    distro = recorder.reader.read(_DISTRO_PATH)
    pretty = re.search(rb'^PRETTY_NAME="?([^"\n]*)', distro.value, re.MULTILINE) if isinstance(distro, Known) else None
    entries = {
        "kernel": release.value.decode("utf-8", "replace").strip() if isinstance(release, Known) else "unknown",
        "distro": pretty[1].decode("utf-8", "replace") if pretty else "unknown",
        "cgroup_mode": mode,
        "command": recorder.hide(command.encode("utf-8", "surrogateescape")).decode("utf-8", "replace"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "redactions": "container ids and pod uids, boot id" if recorder.redact else "none",
        "left_out": f"mounts other than {', '.join(_FS_TYPES_KEPT)}",
    }
    lines = [f"{key} = {_toml(value)}" for key, value in entries.items()]
    lines += ["", "[errors]", *(f"{_toml(path)} = {_toml(why)}" for path, why in sorted(recorder.errors.items()))]
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    """Write a TOML basic string: JSON's escapes, but DEL too, and lone surrogates made printable."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
