"""The levels of a lab process, read with the product's own readers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

from guard.kernel.locate import locate
from guard.kernel.reader import Reader
from guard.kernel.values import Chain, MemoryLevel, Psi
from guard.model import Known, Reading, Unknown
from sidecar.collect.cgroup import LevelReader
from sidecar.sight.levels import close_levels, open_levels
from tests.lab.kit.cgroups import Cgroup
from tests.lab.kit.wait import until

T = TypeVar("T")


def chain_of(group: Cgroup) -> Chain:
    """Return the levels of the first process in the group, once there is one that has joined."""
    pid = until(group.pids, 10, f"a process in {group.path}")[0]
    return known(locate(Reader(), pid))


@contextlib.contextmanager
def readers_of(group: Cgroup) -> Iterator[list[LevelReader]]:
    """Keep the files of every level of the group's process open, own level first, as the sidecar does."""
    levels = open_levels(Reader(), chain_of(group))
    try:
        yield [LevelReader(level) for level in levels]
    finally:
        close_levels(levels)


def now(reader: LevelReader) -> MemoryLevel:
    """Read everything of one level."""
    return reader.read(full=True).memory


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
