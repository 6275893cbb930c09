"""The shapes that most kernel files have: one number, one limit, and lines of `name number`.

A kernel file ends with a newline. Data that does not was cut, and a cut number is a wrong number: it is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Final

from guard.model import UNLIMITED, Known, Limit, Reading, Unknown, Why

_MAX_DIGITS: Final = 20  # of an unsigned 64 bit number


def parse_number(data: bytes, where: str) -> Reading[int]:
    """Parse a file that holds one number and a newline, e.g. memory.current."""
    word = data[:-1]
    if data[-1:] != b"\n" or not word.isdigit() or len(word) > _MAX_DIGITS:
        return malformed(data, where)
    return Known(int(word))


# v1 prints "no limit" as LONG_MAX rounded down to a page: ...771712 with 4 KiB pages, ...759424 with 16 KiB,
# ...710272 with 64 KiB; kernels before 3.19 print LONG_MAX itself (res_counter).
_LEAST_UNLIMITED: Final = (1 << 63) - (64 << 10)


def limit_of(bytes_printed: int) -> Limit:
    """Tell a number of bytes from one of the numbers that mean "no limit"."""
    return UNLIMITED if bytes_printed >= _LEAST_UNLIMITED or bytes_printed == -1 else bytes_printed


def parse_limit(data: bytes, where: str) -> Reading[Limit]:
    """Parse a limit file: bytes, or one of the spellings of no limit: "max" (v2), -1 (written to v1), a huge number."""
    if data in (b"max\n", b"-1\n"):
        return Known(UNLIMITED)
    number = parse_number(data, where)
    return number if isinstance(number, Unknown) else Known(limit_of(number.value))


def parse_table(data: bytes, where: str) -> Reading[Mapping[str, int]]:
    """Parse lines of `name number` (memory.stat, memory.events, cpu.stat, vmstat) into a mapping of what they hold.

    Lines of another shape are left out. MALFORMED if no line has it. An empty file is MALFORMED as well.
    """
    text = data.decode("latin-1")
    words = text.split()
    if data[-1:] == b"\n" and len(words) == 2 * data.count(b"\n"):
        try:
            # Names are interned: a history holds thousands of tables with the same sixty names.
            return Known(dict(zip(map(intern, words[::2]), map(int, words[1::2]), strict=True)))
        except ValueError:
            pass  # a line is odd: go through them one at a time
    table = _parse_lines(text)
    return Known(table) if table else malformed(data, where)


def _parse_lines(text: str) -> dict[str, int]:
    table: dict[str, int] = {}
    for line in text.split("\n")[:-1]:
        words = line.split()
        if len(words) == 2 and words[1].isascii() and words[1].isdigit() and len(words[1]) <= _MAX_DIGITS:  # noqa: PLR2004 - name and number
            table[intern(words[0])] = int(words[1])
    return table


def malformed(data: bytes, where: str) -> Unknown:
    """Say that the file was read but is not in the shape we know, with the start of what it held."""
    if not data:
        return Unknown(Why.MALFORMED, where, None, "empty")
    cut = "" if data.endswith(b"\n") else "no final newline: cut short? "
    return Unknown(Why.MALFORMED, where, None, f"{cut}{data[:60]!r}")
