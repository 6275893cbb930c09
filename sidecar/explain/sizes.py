"""Sizes as logs print them, in bytes. Decimals are cut, not rounded: the printed number was rounded already."""

from __future__ import annotations

import re
from typing import Final

SIZE: Final = r"(-?\d{1,20}(?:[.,]\d{1,6})?)\s?(bytes|[KMGTPE]i?B|[KMGTPE]i?|B)(?![A-Za-z])"
ONE: Final = r"-?\d{1,20}(?:[.,]\d{1,6})?\s?(?:bytes|[KMGTPE]i?B|[KMGTPE]i?|B)(?![A-Za-z])"
"""One size without groups, to be put into longer patterns."""
_POWER: Final = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SIZE: Final = re.compile(SIZE)
UNLIMITED_BYTES: Final = 1 << 62
"""At and above this no limit was set: 2^63 - 1 rounded to pages, and 2^64 in the text of torch (17179869184.00 GiB)."""
_DTYPES: Final = {"bool": 1, "half": 2, "float": 4, "double": 8, "complex64": 8, "complex128": 16, "bfloat16": 2}


def bytes_of(number: str, unit: str) -> int:
    """Turn a printed number with its unit into bytes. KB and GB are powers of 1024, as the loggers mean them."""
    return (
        int(float(number.replace(",", ".")) * 1024 ** _POWER.get(unit[:1], 0))
        if "." in number or "," in number
        else (int(number) * 1024 ** _POWER.get(unit[:1], 0))
    )


def size(text: str | None) -> int | None:
    """Read the first size in a text."""
    found = None if text is None else _SIZE.search(text)
    return None if found is None else bytes_of(found[1], found[2])


def limit(text: str | None) -> int | None:
    """Read a limit; None where it is unlimited."""
    value = size(text)
    return None if value is None or value >= UNLIMITED_BYTES else value


def array_bytes(shape: str, dtype: str) -> int | None:
    """Give the bytes of an array from its printed shape and type."""
    dims = [int(one) for one in re.findall(r"\d{1,18}", shape)]
    bits = re.search(r"(?:int|float|complex|uint)(\d{1,3})$", dtype)
    width = int(bits[1]) // 8 if bits else _DTYPES.get(dtype.lower().removeprefix("dt_"))
    if not dims or width is None:
        return None
    count = width
    for one in dims:
        count *= one
    return count
