"""The levels of a lab process, read with the product's own readers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

from guard.kernel import memcg
from guard.kernel.locate import locate
from guard.kernel.reader import KeptFile, Reader
from guard.kernel.values import Chain, LevelPath, MemoryLevel, Psi
from guard.model import Known, Reading, Unknown
from tests.lab.kit.cgroups import Cgroup
from tests.lab.kit.wait import until

T = TypeVar("T")


def chain_of(group: Cgroup) -> Chain:
    """Return the levels of the first process in the group, once there is one that has joined."""
    pid = until(group.pids, 30, f"a process in {group.path}")[0]
    return known(locate(Reader(), pid))


class Level:
    """One level with its files open, as the sidecar keeps them."""

    def __init__(self, path: LevelPath) -> None:
        self._version = path.version
        trees = {memcg.MEMORY: path.memory_dir, memcg.UNIFIED: path.unified_dir, memcg.CPU: path.cpu_dir}
        kept = {file.name: Reader().keep(f"{trees[file.tree]}/{file.name}") for file in memcg.FILES[path.version]}
        self.files = {name: file for name, file in kept.items() if isinstance(file, KeptFile)}

    def now(self) -> MemoryLevel:
        """Read everything."""
        return memcg.parse_level(self._version, {name: file.read() for name, file in self.files.items()})

    def close(self) -> None:
        """Close the files."""
        for file in self.files.values():
            file.close()


@contextlib.contextmanager
def levels_of(group: Cgroup) -> Iterator[list[Level]]:
    """Keep the files of every level of the group's process open, own level first."""
    levels = [Level(path) for path in chain_of(group).levels]
    try:
        yield levels
    finally:
        for level in levels:
            level.close()


def known(reading: Reading[T]) -> T:
    """Return the value; a reading that is unknown here fails the case."""
    assert isinstance(reading, Known), str(reading)
    return reading.value


def stalled_us(pressure: Reading[Psi]) -> int:
    """Return the time in which some task of the group stalled."""
    return known(pressure).some.total_us


def why_unknown(reading: Reading[object]) -> str:
    """Return why a reading is unknown; a known one fails the case."""
    assert isinstance(reading, Unknown), str(reading)
    return reading.why.value
