"""Pressure files: /proc/pressure/* and *.pressure of a cgroup (kernel 4.20+, Documentation/accounting/psi.rst).

`full` is not printed for the CPU before kernel 5.13, and irq.pressure (6.1+) prints only `full`.
"""

from __future__ import annotations

import math

from guard.kernel.flat import malformed
from guard.kernel.values import Psi, PsiLine
from guard.model import Known, Reading

_PREFIXES = (b"avg10=", b"avg60=", b"avg300=", b"total=")


def parse(data: bytes, where: str) -> Reading[Psi]:
    """Parse a pressure file. MALFORMED without a complete `some` line; an incomplete `full` line is MALFORMED too."""
    lines: dict[bytes, PsiLine] = {}
    for raw in data.split(b"\n")[:-1]:
        kind, *words = raw.split()
        if kind in (b"some", b"full"):
            line = _parse_words(words)
            if line is None:
                return malformed(data, where)
            lines[kind] = line
    some = lines.get(b"some")
    return malformed(data, where) if some is None else Known(Psi(some, lines.get(b"full")))


def _parse_words(words: list[bytes]) -> PsiLine | None:
    if len(words) < len(_PREFIXES):
        return None
    values = [word[len(prefix) :] for word, prefix in zip(words, _PREFIXES, strict=False) if word.startswith(prefix)]
    if len(values) != len(_PREFIXES) or not values[3].isdigit():
        return None
    try:
        avg10, avg60, avg300 = float(values[0]), float(values[1]), float(values[2])
        total_us = int(values[3])
    except ValueError:
        return None
    return PsiLine(avg10, avg60, avg300, total_us) if math.isfinite(avg10 + avg60 + avg300) else None
