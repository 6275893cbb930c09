"""Records for tests: a recorder for the length of a block, and a look at its file from outside."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from board_makers import NOW, FrozenClock

from sidecar.outputs.record_store import Loaded, RecordLimits
from sidecar.outputs.recorder import Recorder
from sidecar.sample import Instant

QUICK = RecordLimits(flush_seconds=0.05, retry_seconds=0.05)


@asynccontextmanager
async def recording(
    path: Path, limits: RecordLimits = QUICK, boot_id: str = "boot-1"
) -> AsyncIterator[tuple[Recorder, Loaded]]:
    """A recorder that is closed at the end, and what it loaded."""
    recorder = Recorder(path, limits, boot_id=boot_id, clock=FrozenClock())
    try:
        yield recorder, await recorder.load()
    finally:
        await recorder.close()


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    """Ask a closed or open record from outside, as `sqlite3` at the prompt does."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def aside(path: Path, reason: str) -> list[Path]:
    """What was moved away from a path, for a reason."""
    return sorted(path.parent.glob(f"{path.name}.{reason}-*Z"))


def tick(number: int, seconds: float = 0.1) -> Instant:
    """The time of a tick."""
    return Instant(NOW.monotonic_s + number * seconds, NOW.wall_s + number * seconds)
