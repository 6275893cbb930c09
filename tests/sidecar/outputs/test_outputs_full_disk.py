"""The recorder on real file systems that are full, tiny or read-only."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from board_makers import NOW, FrozenClock, event, incident, judgement, sample

from sidecar.outputs.record_store import RecordLimits
from sidecar.outputs.recorder import Recorder
from sidecar.sample import Instant
from tests.sidecar.eventually import eventually
from tests.sidecar.small_disks import fill, remount, small_disk

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")]
QUICK = RecordLimits(flush_seconds=0.02, retry_seconds=0.05)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 2 MiB, mounted for one test."""
    with small_disk(tmp_path / "disk", 2) as disk:
        yield disk


def tick(number: int) -> Instant:
    """The time of a tick, one a second."""
    return Instant(NOW.monotonic_s + number, NOW.wall_s + number)


def stored(path: Path, table: str) -> list[str]:
    """Ids in the closed record, oldest first."""
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [str(one) for (one,) in connection.execute(f"SELECT id FROM {table} ORDER BY n")]
    finally:
        connection.close()


async def test_incidents_of_a_full_disk_are_written_when_there_is_room(disk: Path) -> None:
    """The reserve takes some, then the rest waits in memory; once there is room, all of it is in the record."""
    path = disk / "record.sqlite"
    recorder = Recorder(path, QUICK, boot_id="boot-1", clock=FrozenClock())
    await recorder.load()
    recorder.put_incident(incident("before"))
    assert await recorder.flush()
    ballast = fill(disk)
    for number in range(150):
        recorder.put_incident(incident(f"i-{number}"))
        recorder.put_event(event(number))
        recorder.put_sample(sample(tick(number)), judgement())
    assert not await recorder.flush()
    degraded = recorder.health().degraded
    assert degraded is not None
    assert "full" in degraded
    assert 100 < recorder.health().waiting_incidents < 150  # the reserve took the first ones
    ballast.unlink()
    await eventually(lambda: recorder.health().degraded is None, "the record to be written")
    assert [one.kind for one in recorder.take_notices()] == ["record_degraded", "record_recovered"]
    await recorder.close()
    assert stored(path, "incidents") == ["before", *(f"i-{number}" for number in range(150))]
    assert stored(path, "events") == [str(number) for number in range(150)]


async def test_old_samples_make_room_for_an_incident_on_a_full_disk(disk: Path) -> None:
    """Somebody else fills the disk and never frees it: an incident still gets in, at the cost of old samples."""
    path = disk / "record.sqlite"
    recorder = Recorder(path, QUICK, boot_id="boot-1", clock=FrozenClock())
    await recorder.load()
    for number in range(300):
        recorder.put_sample(sample(tick(number)), judgement())
        assert number % 30 or await recorder.flush()
    assert await recorder.flush()
    fill(disk)
    for number in range(20):
        recorder.put_incident(incident(f"i-{number}"))
        await eventually(lambda: recorder.health().degraded is None, "the record to be written")
        assert await recorder.flush()
    await recorder.close()
    assert stored(path, "incidents") == [f"i-{number}" for number in range(20)]


async def test_a_disk_smaller_than_the_limit_becomes_a_ring(disk: Path) -> None:
    """The record may take 64 MiB, the disk has 2: it goes on for ever with the newest samples and every incident."""
    path = disk / "record.sqlite"
    recorder = Recorder(path, QUICK, boot_id="boot-1", clock=FrozenClock())
    await recorder.load()
    for number in range(3000):
        recorder.put_sample(sample(tick(number)), judgement())
        if number % 300 == 0:
            recorder.put_incident(incident(f"i-{number}"))
        if number % 50 == 0:
            await recorder.flush()
    await eventually(lambda: recorder.health().degraded is None, "the record to be written")
    assert await recorder.flush()
    await recorder.close()
    assert stored(path, "incidents") == [f"i-{number}" for number in range(0, 3000, 300)]
    connection = sqlite3.connect(path)
    count, newest = connection.execute("SELECT count(*), max(monotonic_s) FROM samples").fetchone()
    connection.close()
    assert newest == tick(2999).monotonic_s
    assert count > 100


async def test_a_full_disk_at_the_start_is_waited_out(disk: Path) -> None:
    """Not even an empty record fits: memory only, and a record as soon as there is room."""
    ballast = fill(disk)
    recorder = Recorder(disk / "record.sqlite", QUICK, boot_id="boot-1", clock=FrozenClock())
    await recorder.load()
    recorder.put_incident(incident("a"))
    assert not await recorder.flush()
    assert recorder.health().degraded is not None
    ballast.unlink()
    await eventually(lambda: recorder.health().degraded is None, "the record to be written")
    await recorder.close()
    assert stored(disk / "record.sqlite", "incidents") == ["a"]


async def test_a_read_only_directory_is_a_state_and_heals(disk: Path) -> None:
    """Read-only from the start: memory only, with the reason; writable again: everything is written."""
    remount(disk, "ro")
    recorder = Recorder(disk / "record.sqlite", QUICK, boot_id="boot-1", clock=FrozenClock())
    await recorder.load()
    recorder.put_incident(incident("a"))
    assert not await recorder.flush()
    degraded = recorder.health().degraded
    assert degraded is not None
    assert "Read-only file system" in degraded
    remount(disk, "rw")
    await eventually(lambda: recorder.health().degraded is None, "the record to be written")
    await recorder.close()
    assert stored(disk / "record.sqlite", "incidents") == ["a"]
