"""Sizes as people read them."""

from __future__ import annotations

from typing import Final

MIB: Final = 1 << 20
_GIB: Final = 1 << 30


def human(size: int) -> str:
    """Give a size in MiB, from 10 GiB on in GiB."""
    return f"{size / _GIB:.1f} GiB" if abs(size) >= 10 * _GIB else f"{size / MIB:.0f} MiB"
