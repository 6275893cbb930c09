"""Wait for a condition, never for a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PACE: Final = float(os.environ.get("LAB_PACE", "1"))
"""Deadlines are multiplied by this. The emulated machine sets it: a Python start takes a hundred times longer there."""


class TooLateError(AssertionError):
    """The condition did not come true in time."""


def until(condition: Callable[[], T | None], seconds: float, what: str, *, pause_seconds: float = 0.02) -> T:
    """Poll until `condition` returns something true and return it; `TooLateError` after `seconds` times `PACE`."""
    deadline = time.monotonic() + seconds * PACE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TooLateError(f"waited {seconds * PACE:.1f} s in vain for: {what}")
        time.sleep(pause_seconds)
