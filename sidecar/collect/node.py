"""The node: memory, counters and pressure of the whole machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from guard.kernel import meminfo, mountinfo, psi
from guard.kernel.flat import malformed
from guard.kernel.reader import KeptFile, Reader
from guard.model import Known, Reading, Unknown, Why
from sidecar.sample import NodeSample

T = TypeVar("T")

_LIMIT: Final = 32 << 10  # bytes; vmstat is about 5 KiB
# Of the 180 lines of vmstat only these are used by anybody here; to parse them all would take 50 us a second.
_COUNTERS: Final = re.compile(rb"\n(oom_kill) ([0-9]{1,20})\n")
FILES: Final = (
    "/proc/meminfo",
    "/proc/vmstat",
    "/proc/pressure/memory",
    "/proc/pressure/io",
    "/proc/pressure/cpu",
)


class NodeReader:
    """Keeps the node's files open. A file that could not be opened stays unknown, with the reason."""

    def __init__(self, reader: Reader) -> None:
        self._files: dict[str, KeptFile | Unknown] = {path: reader.keep(path) for path in FILES}
        self.lxcfs = _served_by_lxcfs(reader)
        """/proc/meminfo is LXCFS's (Incus, LXD): it shows the container's limits as if they were the node."""

    def read(self) -> NodeSample:
        """Read all five files."""
        return NodeSample(
            meminfo=self._read("/proc/meminfo", meminfo.parse),
            vmstat=self._read("/proc/vmstat", _counters),
            memory_pressure=self._read("/proc/pressure/memory", psi.parse),
            io_pressure=self._read("/proc/pressure/io", psi.parse),
            cpu_pressure=self._read("/proc/pressure/cpu", psi.parse),
        )

    def oom_kills(self) -> Reading[int]:
        """Read the node's count of OOM kills alone (vmstat oom_kill, kernel 4.13+; counts cgroup kills too)."""
        return counter(self._read("/proc/vmstat", _counters), "oom_kill")

    def close(self) -> None:
        """Close the descriptors."""
        for file in self._files.values():
            if isinstance(file, KeptFile):
                file.close()

    def _read(self, path: str, parse: Callable[[bytes, str], Reading[T]]) -> Reading[T]:
        file = self._files[path]
        data = file if isinstance(file, Unknown) else file.read(_LIMIT)
        return data if isinstance(data, Unknown) else parse(data.value, path)


def _counters(data: bytes, where: str) -> Reading[Mapping[str, int]]:
    """Take the counters of vmstat that are used; one that this kernel does not print is not in the table."""
    if data[-1:] != b"\n":
        return malformed(data, where)
    return Known({name.decode(): int(number) for name, number in _COUNTERS.findall(b"\n" + data)})


def counter(table: Reading[Mapping[str, int]], name: str) -> Reading[int]:
    """Take one line of a table; a line that the kernel did not print is unknown."""
    if isinstance(table, Unknown):
        return table
    value = table.value.get(name)
    return Unknown(Why.MISSING, name) if value is None else Known(value)


def _served_by_lxcfs(reader: Reader) -> bool:
    data = reader.read("/proc/self/mountinfo")
    if isinstance(data, Unknown):
        return False
    mounts = mountinfo.parse(data.value, "/proc/self/mountinfo")
    return isinstance(mounts, Known) and mountinfo.is_lxcfs(mounts.value, "/proc/meminfo")
