"""Numbers in words, the same everywhere: sizes in powers of 1024, times in seconds, shares in percent."""

from __future__ import annotations

from typing import Final

_STEP: Final = 1024
_STEPS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def human_bytes(count: float) -> str:
    """Say a size: "512 B", "64.0 KiB", "1.5 GiB"; negative sizes keep their sign."""
    size, sign, steps = abs(count), "-" if count < 0 else "", list(_STEPS)
    if size < _STEP:
        return f"{sign}{size:.0f} B"
    size /= _STEP
    while round(size, 1) >= _STEP and len(steps) > 1:  # never "1024.0 KiB"
        size /= _STEP
        del steps[0]
    return f"{sign}{size:.1f} {steps[0]}"


def human_seconds(seconds: float) -> str:
    """Say a time: "0.35 s", "12.3 s", "310 s"."""
    digits = 2 if abs(seconds) < 1 else 1 if abs(seconds) < 100 else 0  # noqa: PLR2004 - about three figures
    return f"{seconds:.{digits}f} s"


def human_share(ratio: float) -> str:
    """Say a share: "21.6 %"."""
    return f"{ratio * 100:.1f} %"
