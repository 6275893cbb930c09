"""Pressure files: /proc/pressure/* and *.pressure of a cgroup (kernel 4.20+, Documentation/accounting/psi.rst).

`full` is not printed for the CPU before kernel 5.13, and irq.pressure (6.1+) prints only `full`.
"""

from __future__ import annotations

import math
from typing import Final

from guard.kernel.flat import malformed
from guard.kernel.values import Psi, PsiLine
from guard.model import Known, Reading

_WORDS: Final = 5  # some avg10=0.00 avg60=0.00 avg300=0.00 total=0


def parse(data: bytes, where: str) -> Reading[Psi]:
    """Parse a pressure file. MALFORMED without a complete `some` line; an incomplete `full` line is MALFORMED too."""
    some = full = None
    for raw in data.split(b"\n")[:-1]:
        words = raw.split()
        kind = words[0] if words else b""
        if kind not in (b"some", b"full"):
            continue
        line = _parse_line(words)
        if line is None:
            return malformed(data, where)
        if kind == b"some":
            some = line
        else:
            full = line
    return malformed(data, where) if some is None else Known(Psi(some, full))


def _parse_line(words: list[bytes]) -> PsiLine | None:
    if len(words) < _WORDS:
        return None
    _, ten, sixty, three_hundred, total = words[:_WORDS]
    names = (ten[:6], sixty[:6], three_hundred[:7], total[:6])
    if names != (b"avg10=", b"avg60=", b"avg300=", b"total=") or not total[6:].isdigit():
        return None
    try:
        line = PsiLine(float(ten[6:]), float(sixty[6:]), float(three_hundred[7:]), int(total[6:]))
    except ValueError:
        return None
    return line if math.isfinite(line.avg10 + line.avg60 + line.avg300) else None
