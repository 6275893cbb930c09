"""The only clock of the daemon. Everything else takes an `Instant`, so tests run in virtual time."""

from __future__ import annotations

import asyncio
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


class SystemClock:
    """The kernel's clocks."""

    def now(self) -> Instant:
        """Read CLOCK_MONOTONIC and the wall clock, one after the other."""
        return Instant(monotonic_s=time.monotonic(), wall_s=time.time())

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(seconds)
