"""The record on real files: written, read back, locked, taken away."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from board_makers import NOW, FrozenClock, event, incident, judgement, sample
from recordings import QUICK, recording, rows, tick

from sidecar.outputs.record_store import Loaded, Pending, RecordLimits, series_lines
from sidecar.outputs.record_writer import Writer
from sidecar.outputs.recorder import Recorder, decode_judge
from sidecar.sample import Instant
from sidecar.verdict.values import EndClass
from tests.sidecar.eventually import eventually


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A judge's memory as this test has it."""

    failures: int
    since_monotonic_s: float | None


async def test_the_next_sidecar_goes_on_where_this_one_ended(tmp_path: Path) -> None:
    """Counts, event ids, incidents, known lives and the judge's memory are there after a restart."""
    path = tmp_path / "record.sqlite"
    async with recording(path) as (first, loaded):
        assert loaded == Loaded()
        first.put_event(event(41))
        first.put_event(event(42, text="odd \udcff"))
        first.put_incident(incident("a"))
        first.put_incident(incident("b"))
        first.put_incident(incident("c", main=False))
        first.put_incident(incident("d", "other", end=EndClass.CRASH_SIGNAL))
        first.put_judge("llm", Memory(failures=2, since_monotonic_s=None))
        assert await first.flush()
        assert (first.health().degraded, first.health().incidents) == (None, 4)
    async with recording(path) as (_, again):
        assert again.ends == {"llm": {"cgroup_oom": 2}, "other": {"crash_signal": 1}}
        assert again.last_event_id == 42
        assert [(one.id, one.text) for one in again.events] == [(41, "something"), (42, "odd ?")]
        assert [one.id for one in again.incidents] == ["d", "c", "b", "a"]
        assert incident("c").life in again.lives
        assert decode_judge(again.judges["llm"], Memory) == Memory(failures=2, since_monotonic_s=None)


async def test_a_memory_of_another_boot_or_shape_is_no_memory(tmp_path: Path) -> None:
    """Monotonic times mean nothing after a reboot, and a field may be new."""
    async with recording(tmp_path / "r") as (first, _):
        first.put_judge("llm", {"failures": "many"})
    async with recording(tmp_path / "r") as (_, same_boot):
        assert decode_judge(same_boot.judges["llm"], Memory) is None
    async with recording(tmp_path / "r", boot_id="boot-2") as (_, next_boot):
        assert next_boot.judges == {}
    async with recording(tmp_path / "s", boot_id="") as (nameless, _):
        nameless.put_judge("llm", {"failures": 1})
    async with recording(tmp_path / "s", boot_id="") as (_, nameless_again):
        assert nameless_again.judges == {}


async def test_samples_are_thinned_on_disk_and_whole_in_an_incident(tmp_path: Path) -> None:
    """Ten ticks a second make one row a second; an incident carries the last minute at full rate."""
    path = tmp_path / "record.sqlite"
    async with recording(path, RecordLimits(series_seconds=10.0)) as (recorder, _):
        for number in range(301):
            recorder.put_sample(sample(tick(number)), judgement())
        recorder.put_incident(incident("a"))
        assert await recorder.flush()
    assert rows(path, "SELECT count(*) FROM samples") == [(31,)]
    [(blob, last)] = rows(path, "SELECT series, last_sample FROM incidents")
    assert isinstance(blob, bytes)
    series = [json.loads(line) for line in series_lines(blob)]
    times = [one["monotonic_s"] for one in series]
    assert times == [round(tick(number).monotonic_s, 3) for number in range(301 - len(times), 301)]
    assert 100 <= len(times) <= 100 + 30
    assert json.loads(str(last))["model"] == "llm"


async def test_a_row_has_what_a_cause_needs_and_no_unknown_zero(tmp_path: Path) -> None:
    """The stored row is compact JSON; what was not known is absent."""
    path = tmp_path / "record.sqlite"
    async with recording(path) as (recorder, _):
        recorder.put_sample(sample(), judgement())
        assert await recorder.flush()
    row = json.loads(str(rows(path, "SELECT row FROM samples")[0][0]))
    own = row["levels"][0]
    assert (own["current"], own["max"], own["high"]) == (104857600, 268435456, "unlimited")
    assert own["events"]["oom_kill"] == 1
    assert own["memory_psi"] == {"some_us": 1500000, "full_us": 500000}
    assert own["stat"]["pgmajfault"] == 42
    assert row["node"]["MemAvailable"] == 4 << 30
    assert "oom_kill" not in row["node"]
    assert row["processes"][0]["rss"] == {"anon": 50 << 20, "file": 10 << 20}
    assert row["probe"]["outcome"] == "ok"
    assert row["state"] == "ok"
    assert row["operations"][0]["bytes_done"] == 3 << 20


async def test_a_refined_verdict_replaces_the_first_and_counts_once(tmp_path: Path) -> None:
    """The same id again changes the incident, not the counter, and keeps the series it had."""
    path = tmp_path / "record.sqlite"
    async with recording(path) as (recorder, _):
        recorder.put_sample(sample(), judgement())
        recorder.put_incident(incident("a", end=EndClass.UNKNOWN))
        assert await recorder.flush()
        recorder.put_incident(incident("a", end=EndClass.CGROUP_OOM))
        assert await recorder.flush()
    async with recording(path) as (_, again):
        assert [one.verdict.end_class for one in again.incidents] == [EndClass.CGROUP_OOM]
        assert again.ends == {"llm": {"unknown": 1}}
    assert rows(path, "SELECT count(*) FROM incidents WHERE length(series) > 0") == [(1,)]


WRITER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from board_makers import event, incident, sample, judgement
from sidecar.outputs.record_store import RecordLimits
from sidecar.outputs.recorder import Recorder

async def main():
    recorder = Recorder(sys.argv[1], RecordLimits(flush_seconds=0.01), boot_id="boot-1")
    known = await recorder.load()
    number = known.last_event_id
    while True:
        number += 1
        recorder.put_event(event(number))
        recorder.put_sample(sample(), judgement())
        recorder.put_incident(incident(f"i-{number}"))
        if await recorder.flush():
            print(number, flush=True)

asyncio.run(main())
"""


def write_until_killed(path: Path, count: int) -> int:
    """Start a writer, kill it after `count` acknowledgements; the last number that it acknowledged."""
    command = [sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert writer.stdout is not None
    with writer.stdout as said:
        numbers = [said.readline() for _ in range(count)]
        writer.kill()
        numbers += said.read().splitlines()
    writer.wait()
    return max(map(int, numbers))


async def test_kill_minus_nine_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    """Twenty writers killed in the middle: every acknowledged record is there, the file is sound, ids go on."""
    path = tmp_path / "record.sqlite"
    acknowledged = 0
    for turn in range(20):
        before, acknowledged = acknowledged, await asyncio.to_thread(write_until_killed, path, 1 + turn % 7)
        assert acknowledged > before
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert rows(path, f"SELECT count(DISTINCT id) FROM events WHERE id <= {acknowledged}") == [(acknowledged,)]
    async with recording(path) as (recorder, again):
        assert acknowledged <= again.last_event_id <= acknowledged + 1
        assert again.ends["llm"]["cgroup_oom"] == again.last_event_id
        assert recorder.take_notices() == ()


async def test_two_sidecars_do_not_share_a_record(tmp_path: Path) -> None:
    """The second one works from memory, says who holds the record, and takes it over when it is free."""
    path = tmp_path / "record.sqlite"
    async with recording(path) as (first, _):
        first.put_incident(incident("first"))
        assert await first.flush()
        second = Recorder(path, QUICK, boot_id="boot-1")
        assert await second.load() == Loaded()
        degraded = second.health().degraded
        assert degraded is not None
        assert f"another sidecar keeps {path} (pid {os.getpid()} on " in degraded
        second.put_incident(incident("second"))
        assert not await second.flush()
    await eventually(lambda: second.health().degraded is None, "the record to be written")
    late = second.take_late()
    assert late is not None
    assert late.ends == {"llm": {"cgroup_oom": 1}}
    assert second.take_late() is None
    await second.close()
    assert rows(path, "SELECT id FROM incidents ORDER BY n") == [("first",), ("second",)]


def test_a_record_works_again_only_once_it_was_written(tmp_path: Path) -> None:
    """With nothing to write a file that opens is no proof: the writer tries a row of its own."""
    writer = Writer(tmp_path / "record.sqlite", QUICK, "boot-1", FrozenClock())
    file = writer.open()
    assert file is not None
    file.connection.execute("PRAGMA query_only=ON")
    writer.degraded = "no room"
    writer.round(Pending(), force=True)
    assert writer.degraded is not None
    assert "record_recovered" not in [notice.kind for notice in writer.notices]
    writer.round(Pending(), force=True)
    assert writer.degraded is None
    assert writer.notices[-1].kind == "record_recovered"
    writer.close()


async def test_an_absent_directory_is_waited_for(tmp_path: Path) -> None:
    """Memory only and degraded; once the directory is there, everything that waited is written."""
    path = tmp_path / "shared" / "record.sqlite"
    async with recording(path) as (recorder, _):
        recorder.put_incident(incident("a"))
        recorder.put_event(event(1))
        assert not await recorder.flush()
        degraded = recorder.health().degraded
        assert degraded is not None
        assert "No such file or directory" in degraded
        path.parent.mkdir()
        await eventually(lambda: recorder.health().degraded is None, "the record to be written")
        kinds = [notice.kind for notice in recorder.take_notices()]
        assert kinds == ["record_degraded", "record_recovered"]
    assert rows(path, "SELECT id FROM incidents") == [("a",)]


async def test_a_record_removed_under_the_sidecar_is_begun_anew(tmp_path: Path) -> None:
    """Rows do not go into an unlinked file, and the counts so far are carried over."""
    path = tmp_path / "record.sqlite"
    async with recording(path) as (recorder, _):
        recorder.put_incident(incident("a"))
        assert await recorder.flush()
        path.unlink()
        recorder.put_incident(incident("b"))
        assert await recorder.flush()
        assert [notice.kind for notice in recorder.take_notices()] == ["record_gone"]
    async with recording(path) as (_, again):
        assert [one.id for one in again.incidents] == ["b"]
        assert again.ends == {"llm": {"cgroup_oom": 2}}


async def test_the_record_stays_within_its_size_and_incidents_stay(tmp_path: Path) -> None:
    """Oldest samples go first; no incident goes while a sample is left."""
    path = tmp_path / "record.sqlite"
    limits = RecordLimits(max_bytes=3 << 20, flush_seconds=0.01)
    async with recording(path, limits) as (recorder, _):
        for start in range(0, 5000, 1000):
            recorder.put_incident(incident(f"i-{start}"))
            for number in range(start, start + 1000):
                recorder.put_sample(sample(tick(number, 1.0)), judgement())
            assert await recorder.flush()
            used = sum(one.stat().st_size for one in (path, path.with_name("record.sqlite-wal")))
            assert used <= 5 << 20  # the batch of a thousand samples itself is 2 MiB, in the log
    assert path.stat().st_size <= 3 << 20
    assert rows(path, "SELECT count(*) FROM incidents") == [(5,)]
    [(count, newest)] = rows(path, "SELECT count(*), max(monotonic_s) FROM samples")
    assert isinstance(count, int)
    assert 500 < count < 4500
    assert newest == tick(4999, 1.0).monotonic_s
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


async def test_old_samples_go_but_not_by_a_clock_that_jumps(tmp_path: Path) -> None:
    """A week after, a sample goes; a wall clock that jumps a year ahead deletes nothing."""
    path, clock = tmp_path / "record.sqlite", FrozenClock()
    for number, clock_at in enumerate((NOW, tick(8, 86400.0))):
        clock.at = clock_at
        recorder = Recorder(path, QUICK, boot_id="boot-1", clock=clock)
        await recorder.load()
        recorder.put_sample(sample(clock_at), judgement())
        recorder.put_event(event(number))
        assert await recorder.flush()
        await recorder.close()
    assert rows(path, "SELECT wall_s FROM samples") == [(tick(8, 86400.0).wall_s,)]
    assert rows(path, "SELECT count(*) FROM events") == [(2,)]
    recorder = Recorder(path, QUICK, boot_id="boot-1", clock=clock)
    await recorder.load()
    clock.at = Instant(clock.at.monotonic_s + 1, clock.at.wall_s + 366 * 86400)
    recorder.put_event(event(3))
    assert await recorder.flush()
    await recorder.close()
    assert rows(path, "SELECT count(*) FROM samples") == [(1,)]


async def test_a_recorder_that_is_closed_answers() -> None:
    """A late put or flush is no error and no wait."""
    recorder = Recorder("/nonexistent/record.sqlite", QUICK, boot_id="b")
    await recorder.load()
    await recorder.close()
    recorder.put_event(event(1))
    assert not await recorder.flush()


async def test_the_loop_never_waits_for_the_disk(tmp_path: Path) -> None:
    """While another process holds SQLite's write lock, putting stays instant and the rows arrive afterwards."""
    path = tmp_path / "record.sqlite"
    async with recording(path) as (recorder, _):
        assert await recorder.flush()
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        waits = []
        for number in range(200):
            began = time.monotonic()
            recorder.put_event(event(number))
            recorder.put_incident(incident(f"i-{number}"))
            await asyncio.sleep(0)
            waits.append(time.monotonic() - began)
        assert sorted(waits)[190] < 0.5  # SQLite's own wait for the lock is 1 s; any of a few may be the machine's
        holder.execute("ROLLBACK")
        holder.close()
        await eventually(lambda: recorder.health().waiting_incidents == 0, "the incidents to be written")
        await eventually(lambda: recorder.health().degraded is None, "the record to be written")
        assert await recorder.flush()
    assert rows(path, "SELECT count(*) FROM incidents") == [(200,)]
