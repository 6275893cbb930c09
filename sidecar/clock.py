"""The only clock of the daemon. Everything else takes an `Instant`, so tests run in virtual time."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Protocol

from sidecar.sample import Instant


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> Instant:
        """Read both clocks."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; cancellation ends it at once."""
        ...


def began_s(start_ticks: int) -> float | None:
    """Say when a process began, on CLOCK_MONOTONIC, by field 22 of its stat; None where that is not known (0).

    The kernel counts that field on CLOCK_BOOTTIME, which goes on while the machine sleeps.
    """
    if start_ticks == 0:
        return None
    slept_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return start_ticks / os.sysconf("SC_CLK_TCK") - slept_s


class SystemClock:
    """The kernel's clocks."""

    def now(self) -> Instant:
        """Read CLOCK_MONOTONIC and the wall clock, one after the other."""
        return Instant(monotonic_s=time.monotonic(), wall_s=time.time())

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(seconds)
