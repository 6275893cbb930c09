"""Moments as people write them on a command line. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

HELP: Final = (
    "2026-11-30T13:05 (UTC), 2026-11-30T14:05+01:00, seconds since 1970, or 90s, 15m, 2h, 7d before the last row"
)
_AGO: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd])")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCH: Final = re.compile(r"\d{1,12}(?:\.\d{1,9})?")


def moment(text: str, last_wall_s: float) -> float:
    """Read a moment as seconds since 1970. `90s` counts back from the last row: the record may be an old copy.

    Raises:
        ValueError: it is none; the text says what is.
    """
    if (ago := _AGO.fullmatch(text)) is not None:
        return last_wall_s - float(ago[1]) * _UNITS[ago[2]]
    if _EPOCH.fullmatch(text) and not re.fullmatch(r"\d{8}", text):  # eight digits are a date
        return float(text)
    try:
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time; give {HELP}") from None
