"""A clock for tests."""

from __future__ import annotations

import asyncio

from sidecar.sample import Instant


class VirtualClock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.at_s = 1000.0
        self.slept: list[float] = []

    def now(self) -> Instant:
        """Give the virtual time."""
        return Instant(self.at_s, self.at_s)

    async def sleep(self, seconds: float) -> None:
        """Move the time on and let others run."""
        self.slept.append(seconds)
        self.at_s += seconds
        await asyncio.sleep(0)
