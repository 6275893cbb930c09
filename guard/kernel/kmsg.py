r"""Records of /dev/kmsg (Documentation/ABI/testing/dev-kmsg): `priority,sequence,usec,flags[,more];text`.

Lines after the first begin with a blank and hold `KEY=value`. Bytes that are not printable, and the backslash, are
written as `\xNN`.
"""

from __future__ import annotations

import re
from typing import Final

from guard.kernel.flat import malformed
from guard.kernel.values import KmsgRecord
from guard.model import Known, Reading

_ESCAPE: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")
_MAX_DIGITS: Final = 20
_NUMBERS: Final = 3


def parse_record(data: bytes, where: str) -> Reading[KmsgRecord]:
    """Parse one record as one read(2) returns it."""
    head, semicolon, body = data.partition(b";")
    numbers = head.split(b",")[:_NUMBERS]
    if not semicolon or len(numbers) < _NUMBERS or not all(n.isdigit() and len(n) <= _MAX_DIGITS for n in numbers):
        return malformed(data, where)
    priority, sequence, timestamp_us = map(int, numbers)
    first, *more = body.split(b"\n")
    pairs = [_text(line[1:]).partition("=") for line in more if line.startswith(b" ")]
    return Known(
        KmsgRecord(
            level=priority & 7,
            facility=priority >> 3,
            sequence=sequence,
            timestamp_us=timestamp_us,
            text=_text(first),
            fields={key: value for key, equals, value in pairs if equals},
        )
    )


def _text(raw: bytes) -> str:
    if b"\\" in raw:
        raw = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), raw)
    return raw.decode("utf-8", "replace")
