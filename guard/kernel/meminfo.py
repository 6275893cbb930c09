"""/proc/meminfo (proc_meminfo(5))."""

from __future__ import annotations

import re
from collections.abc import Mapping
from sys import intern
from typing import Final

from guard.kernel.flat import malformed
from guard.model import Known, Reading, Unknown, Why

_KIB: Final = 1024
_LINE: Final = re.compile(r"^([^:\n]+): *([0-9]{1,20})( kB)?\n", re.MULTILINE)


def parse(data: bytes, where: str) -> Reading[Mapping[str, int]]:
    """Parse into bytes by the kernel's names ("MemAvailable"); lines without a unit (HugePages_Total) stay counts.

    Lines of another shape are left out. MALFORMED if no line can be read.
    """
    lines = _LINE.findall(data.decode("latin-1"))
    table = {intern(name): int(number) * (_KIB if unit else 1) for name, number, unit in lines}
    return Known(table) if table else malformed(data, where)


def swap_free_bytes(table: Reading[Mapping[str, int]]) -> Reading[int]:
    """Free swap of the node, from a parsed meminfo."""
    if isinstance(table, Unknown):
        return table
    free = table.value.get("SwapFree")
    return Unknown(Why.MISSING, "/proc/meminfo SwapFree") if free is None else Known(free)
