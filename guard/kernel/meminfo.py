"""/proc/meminfo (proc_meminfo(5))."""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Final

from guard.kernel.flat import malformed
from guard.model import Known, Reading, Unknown, Why

_KIB: Final = 1024
_MAX_DIGITS: Final = 20


def parse(data: bytes, where: str) -> Reading[Mapping[str, int]]:
    """Parse into bytes by the kernel's names ("MemAvailable"); lines without a unit (HugePages_Total) stay counts.

    Lines of another shape are left out. MALFORMED if no line can be read.
    """
    table: dict[str, int] = {}
    for line in data.decode("latin-1").split("\n")[:-1]:
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and words and words[0].isascii() and words[0].isdigit() and len(words[0]) <= _MAX_DIGITS:
            table[intern(name)] = int(words[0]) * (_KIB if words[1:] == ["kB"] else 1)
    return Known(table) if table else malformed(data, where)


def swap_free_bytes(table: Reading[Mapping[str, int]]) -> Reading[int]:
    """Free swap of the node, from a parsed meminfo."""
    if isinstance(table, Unknown):
        return table
    free = table.value.get("SwapFree")
    return Unknown(Why.MISSING, "/proc/meminfo SwapFree") if free is None else Known(free)
