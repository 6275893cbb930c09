"""Whether handed-over descriptors are what their names say. Nothing of a client is believed that can be looked at.

A descriptor can be a FIFO, a device or a file of a FUSE mount whose owner never answers, so already `fstatfs` or a read
may block for ever. Therefore `check` runs in a thread of its own (see `handover`), and reads every file once: what was
read once without blocking is on cgroupfs or proc, and goes on not to block.

Refused whole: anything wrong with a cgroup file, a /proc file or the pidfd, as no guard ever sends that. Left out:
names that this release does not know (a newer guard may send them), and a black box that is none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from guard.box import format as box_format
from guard.box.reader import parse_box
from guard.kernel import memcg, procfs
from guard.kernel.reader import CGROUP2_MAGIC, CGROUP_MAGIC, PROC_MAGIC, KeptFile, Reader
from guard.kernel.values import CgroupVersion
from guard.link.handover import PROCESS_FILES
from guard.link.protocol import Hello, LevelNote
from guard.model import Known, LifeId, Unknown, Why
from sidecar.sample import LevelId
from sidecar.sight.seen import SeenLevel, SeenProcess

_MOST_BOX_BYTES: Final = 64 << 10
_CGROUP_MAGICS: Final = frozenset({CGROUP_MAGIC, CGROUP2_MAGIC})
_OWN_MAGIC: Final = {CgroupVersion.V1: CGROUP_MAGIC, CgroupVersion.V2: CGROUP2_MAGIC}
_IDENTITY_FILES: Final = ("memory.current", "memory.usage_in_bytes", "memory.stat")
"""The files whose inode stands for the level's, best first. The v2 root has no memory.current."""


class RejectedError(Exception):
    """The hand-over is not taken. The text is the reason, for the client and the log."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What the kernel says about the sender, and which file system the shared directory lies on."""

    uid: int
    shared_magic: int | None


@dataclass(frozen=True, slots=True)
class Checked:
    """A hand-over that is what it says. The taker owns every descriptor in it."""

    hello: Hello
    levels: tuple[SeenLevel, ...]
    process: SeenProcess
    left_out: tuple[str, ...]  # what was not taken, and why


def check(hello: Hello, descriptors: Sequence[int], peer: Peer) -> Checked:
    """Look at every descriptor; close all that are not part of the answer. May block: run it in a thread.

    Raises:
        RejectedError: the hand-over is not what it says; every descriptor is closed.
    """
    with contextlib.ExitStack() as mine:
        for fd in descriptors:
            mine.callback(os.close, fd)
        if len(descriptors) != len(hello.descriptors):
            raise RejectedError(f"{len(hello.descriptors)} descriptors announced, {len(descriptors)} arrived")
        named = dict(zip(hello.descriptors, descriptors, strict=True))
        if len(named) != len(descriptors):
            raise RejectedError("two descriptors have one name")
        left_out: list[str] = []
        files = _check_process_files(named, hello.life)
        pidfd = _check_pidfd(named.get("pidfd"), hello.life)
        _check_life(files["stat"], pidfd, hello.life)
        levels = tuple(_check_level(note, named) for note in _ordered(hello.levels))
        process = SeenProcess(
            life=hello.life,
            parent_session=hello.parent_session,
            command=hello.command,
            uid=peer.uid,
            pidfd=pidfd,
            files=files,
            box=_check_box(named.get("box"), hello.life, peer, left_out),
        )
        checked = Checked(hello, tuple(level for level in levels if level.files), process, tuple(left_out))
        mine.pop_all()
    kept = set(_descriptors_of(checked))
    for fd in descriptors:
        if fd not in kept:
            os.close(fd)
    return checked


def close_process(process: SeenProcess) -> None:
    """Close every descriptor of a process."""
    for file in process.files.values():
        file.close()
    if process.box is not None:
        process.box.close()
    pidfd, process.pidfd = process.pidfd, None
    if pidfd is not None:
        os.close(pidfd)


def _descriptors_of(checked: Checked) -> list[int]:
    process = checked.process
    kept = [file.fd for level in checked.levels for file in level.files.values()]
    kept += [file.fd for file in process.files.values()]
    kept += [] if process.pidfd is None else [process.pidfd]
    kept += [] if process.box is None else [process.box.fd]
    return kept


def _ordered(notes: tuple[LevelNote, ...]) -> list[LevelNote]:
    """Levels by depth."""
    if len({note.depth for note in notes}) != len(notes):
        raise RejectedError("two levels have one depth")
    return sorted(notes, key=lambda note: note.depth)


def _check_level(note: LevelNote, named: Mapping[str, int]) -> SeenLevel:
    """One level: every file a cgroup file of its name, all files of one tree in one directory."""
    files: dict[str, KeptFile] = {}
    places: dict[str, tuple[int, str]] = {}
    for known in memcg.FILES[note.version]:
        name = f"levels/{note.depth}/{known.name}"
        if name not in named:
            continue
        magics = frozenset({_OWN_MAGIC[note.version]}) if known.tree == memcg.MEMORY else _CGROUP_MAGICS
        file, place = _check_kernel_file(named[name], name, magics)
        if places.setdefault(known.tree, place) != place:
            raise RejectedError(f"{name} is of another cgroup than the files before it")
        files[known.name] = file
    return SeenLevel(id=_level_id(files), name=note.name, depth=note.depth, version=note.version, files=files)


def _level_id(files: Mapping[str, KeptFile]) -> LevelId:
    """Identity of a level by one of its files: kernfs gives every file an inode number of its own for its life."""
    name = next((name for name in (*_IDENTITY_FILES, *files) if name in files), None)
    if name is None:
        return LevelId(0, 0)  # a level without files is left out
    found = os.fstat(files[name].fd)
    return LevelId(found.st_dev, found.st_ino)


def _check_process_files(named: Mapping[str, int], life: LifeId) -> dict[str, KeptFile]:
    """The files of /proc/PID, all of one process."""
    if "proc/stat" not in named:
        raise RejectedError(f"proc/stat is missing, so process {life.pid} cannot be told from another")
    files: dict[str, KeptFile] = {}
    places = set()
    for known in PROCESS_FILES:
        if (name := f"proc/{known}") in named:
            files[known], place = _check_kernel_file(named[name], name, frozenset({PROC_MAGIC}))
            places.add(place)
    if len(places) != 1:
        raise RejectedError("the proc files are of different processes")
    return files


def _check_kernel_file(fd: int, name: str, magics: frozenset[int]) -> tuple[KeptFile, tuple[int, str]]:
    """A kernel file of the right kind and name that can be read without blocking; and its device and directory."""
    file = KeptFile(fd, name)
    magic = file.fs_magic()
    if not isinstance(magic, Known) or magic.value not in magics:
        raise RejectedError(f"{name} does not lie on {'proc' if PROC_MAGIC in magics else 'a cgroup file system'}")
    if not _is_plain_reader(fd):
        raise RejectedError(f"{name} is not a regular file opened read-only")
    target = Reader().readlink(f"/proc/self/fd/{fd}")
    # Not by pathlib, see guard.kernel.reader.
    folder, _, last = ("" if isinstance(target, Unknown) else target.value.removesuffix(" (deleted)")).rpartition("/")
    if last != name.rpartition("/")[2]:
        raise RejectedError(f"{name} is the file {last!r}")
    file.read()  # whatever it answers: it answered
    return file, (os.fstat(fd).st_dev, folder)


def _is_plain_reader(fd: int) -> bool:
    """A regular file, open for reading only (O_PATH is no reading)."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    return stat.S_ISREG(os.fstat(fd).st_mode) and not flags & (os.O_ACCMODE | os.O_PATH)


def _check_pidfd(fd: int | None, life: LifeId) -> int | None:
    """A pidfd, of this process as far as one can see: a PID namespace beside ours shows 0, an ended process -1."""
    if fd is None:
        return None
    info = Reader().read(f"/proc/self/fdinfo/{fd}")
    text = info.value.decode("utf-8", "replace") if isinstance(info, Known) else ""
    lines = dict(line.partition(":")[::2] for line in text.splitlines())
    if "Pid" not in lines:
        raise RejectedError("pidfd is no pidfd")
    innermost = lines.get("NSpid", "0").split()[-1:]
    if innermost not in ([], ["0"], ["-1"], [str(life.pid)]):
        raise RejectedError(f"pidfd is of process {innermost[0]}, not {life.pid}")
    return fd


def _check_life(file: KeptFile, pidfd: int | None, life: LifeId) -> None:
    """The stat file is of the process that the hello names; of one that has ended meanwhile nobody can tell."""
    data = file.read()
    if isinstance(data, Unknown):
        if data.why is Why.GONE and pidfd is not None and _has_ended(pidfd):
            return
        raise RejectedError(f"process {life.pid} cannot be looked at: {data}")
    found = procfs.parse_stat(data.value, file.where)
    if isinstance(found, Unknown):
        raise RejectedError(f"process {life.pid} cannot be looked at: {found}")
    if (found.value.pid, found.value.starttime_ticks) != (life.pid, life.start_ticks):
        raise RejectedError(f"proc/stat is of process {found.value.pid}, not of this life of process {life.pid}")


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _check_box(fd: int | None, life: LifeId, peer: Peer, left_out: list[str]) -> KeptFile | None:
    """The black box, or None and a reason. It must lie where boxes lie: any other file system may block its reader."""
    if fd is None:
        return None
    file = KeptFile(fd, "box")
    magic = file.fs_magic()
    if not isinstance(magic, Known) or magic.value != peer.shared_magic:
        left_out.append("box: not on the file system of the shared directory")
    elif not _is_plain_reader(fd) or os.fstat(fd).st_size > _MOST_BOX_BYTES:
        left_out.append("box: not a regular file of at most 64 KiB opened read-only")
    else:
        data = file.read(_MOST_BOX_BYTES)
        state = data if isinstance(data, Unknown) else parse_box(data.value[: box_format.SIZE], "box")
        if isinstance(state, Known) and state.value.life == life:
            return file
        left_out.append(str(state) if isinstance(state, Unknown) else "box: of another process")
    return None
