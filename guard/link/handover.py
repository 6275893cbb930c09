"""Opening everything that the sidecar shall keep: the levels' files, the process's files, a pidfd and the black box."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from guard.kernel import locate, memcg
from guard.kernel.reader import Reader
from guard.kernel.values import Chain, LevelPath
from guard.link.protocol import MOST_DESCRIPTORS, MOST_LEVELS, Hello, LevelNote, Role, cut_command, cut_name
from guard.model import LifeId, Unknown

PROCESS_FILES: Final = ("status", "stat", "statm", "io")


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """What a hello says that no kernel file does."""

    name: str  # of the model
    life: LifeId
    parent_session: str | None
    command: str
    role: Role


@dataclass(frozen=True, slots=True)
class Handover:
    """A hello and the descriptors that go with it, in the order of `hello.descriptors`. The owner closes it."""

    hello: Hello
    descriptors: tuple[int, ...]

    def close(self) -> None:
        """Close this side's copies."""
        for fd in self.descriptors:
            os.close(fd)


def gather(
    reader: Reader,
    who: Who,
    *,
    pid: int | None = None,
    box_fd: int | None = None,
    held: Mapping[str, int] | None = None,
) -> Handover:
    """Open what there is of one process (the caller's own without a pid).

    What is missing or denied is left out, so a process without a visible cgroup hands over less, down to nothing. With
    more than 250 descriptors the farthest levels are left out and the hello says that ancestors are hidden.

    Args:
        reader: of the live system.
        who: what to say about the process.
        pid: of another process, as this process's /proc shows it.
        box_fd: of its black box; copied, the caller keeps its own.
        held: what the caller opened of its child before that could end (see `guard.launch`); copied. Of a child that is
            ending the caller's own levels are given, which it was born into.
    """
    located = locate.locate(reader, pid)
    if held is not None and isinstance(located, Unknown):
        located = locate.locate(reader)
    chain = Chain((), hidden_ancestors=True) if isinstance(located, Unknown) else located.value
    with contextlib.ExitStack() as opened:
        found: dict[str, int] = {}
        for name, fd in _open_process(reader, pid, box_fd) if held is None else _copy(held):
            opened.callback(os.close, fd)
            found[name] = fd
        levels = _open_levels(reader, chain, found, opened)
        opened.pop_all()
    hello = Hello(
        name=cut_name(who.name),
        life=who.life,
        parent_session=who.parent_session,
        command=cut_command(who.command),
        role=who.role,
        levels=tuple(levels),
        hidden_ancestors=chain.hidden_ancestors or len(levels) < len(chain.levels),
        descriptors=tuple(found),
    )
    return Handover(hello, tuple(found.values()))


def _open_levels(reader: Reader, chain: Chain, found: dict[str, int], opened: contextlib.ExitStack) -> list[LevelNote]:
    """Add the files of the levels to `found`, nearest first, as long as a whole level still fits."""
    levels: list[LevelNote] = []
    for depth, level in enumerate(chain.levels[:MOST_LEVELS]):
        paths = _paths(level, depth)
        if len(found) + len(paths) > MOST_DESCRIPTORS:
            break
        for name, path in paths.items():
            kept = reader.keep(path)
            if not isinstance(kept, Unknown):
                opened.callback(os.close, kept.fd)
                found[name] = kept.fd
        levels.append(LevelNote(level.name, level.version, depth))
    return levels


def _open_process(reader: Reader, pid: int | None, box_fd: int | None) -> Iterator[tuple[str, int]]:
    """Open the descriptors that every process has."""
    for name in PROCESS_FILES:
        kept = reader.keep(f"/proc/{'self' if pid is None else pid}/{name}")
        if not isinstance(kept, Unknown):
            yield f"proc/{name}", kept.fd
    with contextlib.suppress(OSError):  # pidfd_open needs 5.3; a container's seccomp profile may deny it
        yield "pidfd", os.pidfd_open(os.getpid() if pid is None else pid)
    if box_fd is not None:
        with contextlib.suppress(OSError):
            yield "box", os.dup(box_fd)


def _copy(held: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    for name, fd in held.items():
        yield name, os.dup(fd)


def _paths(level: LevelPath, depth: int) -> dict[str, str]:
    """Name and path of each file of a level that could exist."""
    trees = {memcg.MEMORY: level.memory_dir, memcg.UNIFIED: level.unified_dir, memcg.CPU: level.cpu_dir}
    return {
        f"levels/{depth}/{file.name}": f"{trees[file.tree]}/{file.name}"
        for file in memcg.FILES[level.version]
        if trees[file.tree] is not None
    }
