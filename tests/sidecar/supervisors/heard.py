"""What a source passed on, to wait for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

from sidecar.supervisors.values import Container


class Heard:
    """Takes what a source passes on, and lets a test wait for it."""

    def __init__(self) -> None:
        self.all: list[tuple[Container, ...]] = []
        self.lacking: list[str | None] = []
        self._new = asyncio.Event()

    def take(self, containers: Sequence[Container], lacking: str | None) -> None:
        """Keep it."""
        self.all.append(tuple(containers))
        self.lacking.append(lacking)
        self._new.set()

    def last(self, name: str) -> Container | None:
        """Give what was said last of a container."""
        return next((one for one in self.all[-1] if one.name == name), None) if self.all else None

    async def until(self, true: Callable[[], object], seconds: float = 30) -> None:
        """Wait until something is so, looking at each thing that comes."""
        async with asyncio.timeout(seconds):
            while not true():
                self._new.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._new.wait(), 0.2)


@contextlib.asynccontextmanager
async def running(work: Coroutine[object, object, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run it beside the test, and end it."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
