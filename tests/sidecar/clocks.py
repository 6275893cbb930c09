"""A clock for tests."""

from __future__ import annotations

import asyncio

from sidecar.sample import Instant


class VirtualClock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.at_s = 1000.0
        self.wall_offset_s = 0.0
        self.slept: list[float] = []

    def now(self) -> Instant:
        """Give the virtual time."""
        return Instant(self.at_s, self.at_s + self.wall_offset_s)

    async def sleep(self, seconds: float) -> None:
        """Move the time on and let others run."""
        self.slept.append(seconds)
        self.at_s += seconds
        await asyncio.sleep(0)


class SteppedClock(VirtualClock):
    """A clock whose one sleeper goes on only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._asleep = asyncio.Event()
        self._go = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Wait for the next step, then move the time on."""
        self._asleep.set()
        await self._go.wait()
        self._go.clear()
        self.slept.append(seconds)
        self.at_s += seconds

    async def step(self) -> None:
        """Let the sleeper go on, and wait until it sleeps again, half a minute at most."""
        await self.let_go()
        await asyncio.wait_for(self._asleep.wait(), 30)

    async def let_go(self) -> None:
        """Let the sleeper go on, and perhaps never sleep again."""
        await asyncio.wait_for(self._asleep.wait(), 30)
        self._asleep.clear()
        self._go.set()
