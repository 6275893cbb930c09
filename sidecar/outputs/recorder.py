"""The record of what happened, on one clock: samples, events, incidents, counters, the judge's memory.

Theory of operation
    * `put_*` are called from the event loop, never block and never raise: they add to a bounded queue.
    * One thread owns the file. It commits what waits once a second, an incident at once. What could not be written
      stays in the queue and is tried again; a full, read-only or absent directory is a state (`health().degraded`),
      not an error.
    * The full-rate past of each model is kept in memory as compressed chunks; an incident takes its last minute along.
    * On a full disk the oldest samples inside the file make room for new rows, so an incident gets in even then.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sidecar.board import Event, Incident
from sidecar.clock import Clock, SystemClock
from sidecar.health.values import Judgement
from sidecar.outputs import record_room, record_store
from sidecar.outputs.record_file import Notice, RecordFile, RecordUnavailableError, is_damage, open_record
from sidecar.outputs.record_rows import row
from sidecar.outputs.record_series import Series
from sidecar.outputs.record_store import IncidentRow, Loaded, Pending, RecordLimits, SampleRow
from sidecar.outputs.shape import encode
from sidecar.sample import Sample

T = TypeVar("T")

_LONGEST_RETRY_SECONDS: Final = 30.0
_TRIM_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 5.0
_JUMP_SECONDS: Final = 3600.0  # a wall clock this far off its course since the start is not believed
_NOTICES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderHealth:
    """How the recorder does. `degraded` None: everything that was put is on disk or will be within a second."""

    degraded: str | None
    waiting_incidents: int
    waiting_samples: int
    dropped: int


class Recorder:
    """See the module's docstring. `path` is the file, `boot_id` names the boot that monotonic times belong to."""

    def __init__(
        self, path: str | Path, limits: RecordLimits | None = None, *, boot_id: str, clock: Clock | None = None
    ) -> None:
        self._limits = limits or RecordLimits()
        self._clock = clock or SystemClock()
        self._boot_id = boot_id
        self._series: dict[str, Series] = {}
        self._sampled: dict[str, float] = {}
        self._wake = threading.Condition()
        # Guarded by _wake: what the event loop hands to the thread, and what the thread reports back.
        self._inbox = Pending()
        self._waiters: list[Future[bool]] = []
        self._urgent = False
        self._stop = False
        self._health = RecorderHealth(degraded=None, waiting_incidents=0, waiting_samples=0, dropped=0)
        self._notices: list[Notice] = []
        self._writer = _Writer(Path(path), self._limits, boot_id, self._clock)
        self._loaded: Future[Loaded] = Future()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    async def load(self) -> Loaded:
        """Start the thread and read what the record knows; empty where it cannot be had within `load_seconds`."""
        self._thread.start()
        loaded = asyncio.shield(asyncio.wrap_future(self._loaded))  # a late answer of the thread must find it pending
        try:
            return await asyncio.wait_for(loaded, self._limits.load_seconds)
        except TimeoutError:
            return Loaded()

    def put_sample(self, sample: Sample, judgement: Judgement | None) -> None:
        """Keep one tick: all of them for the next incident, one a second for the disk."""
        line = encode(row(sample, judgement))
        now = sample.at.monotonic_s
        self._series.setdefault(sample.model, Series(self._limits.series_seconds)).add(now, line)
        if abs(now - self._sampled.get(sample.model, float("-inf"))) < self._limits.sample_seconds * 0.95:
            return
        self._sampled[sample.model] = now
        with self._wake:
            self._inbox.add_sample(SampleRow(sample.model, sample.at, line))

    def put_event(self, event: Event) -> None:
        """Keep one event."""
        with self._wake:
            self._inbox.add_event(event)

    def put_incident(self, incident: Incident) -> None:
        """Keep an incident with the model's last minute, at once. The same id again refines it, and counts once."""
        series = self._series.get(incident.model)
        with self._wake:
            self._inbox.add_incident(IncidentRow(incident, series.blob() if series else None))
            self._hurry()

    def put_judge(self, model: str, memory: object) -> None:
        """Keep the judge's memory of a model (a dataclass of JSON values); only the last one counts."""
        encoded = msgspec.json.encode(memory)
        with self._wake:
            self._inbox.judges[model] = encoded

    def forget(self, model: str) -> None:
        """Drop the in-memory past of a model that has gone for good."""
        self._series.pop(model, None)
        self._sampled.pop(model, None)

    def health(self) -> RecorderHealth:
        """How it does, as of the last attempt to write."""
        return self._health

    def take_notices(self) -> tuple[Notice, ...]:
        """What happened to the record since the last call, for the event log."""
        with self._wake:
            taken, self._notices = tuple(self._notices), []
        return taken

    async def flush(self) -> bool:
        """Write all that waits now. False where it could not be written; it keeps waiting then."""
        done: Future[bool] = Future()
        with self._wake:
            if self._stop:
                return False
            self._waiters.append(done)
            self._hurry()
        return await asyncio.wrap_future(done)

    async def close(self) -> None:
        """Write what waits, close the file, end the thread; gives up after some seconds on a disk that hangs."""
        with self._wake:
            self._stop = True
            self._hurry()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, _CLOSE_SECONDS)

    def _hurry(self) -> None:
        self._urgent = True
        self._wake.notify()

    def _run(self) -> None:
        """The thread: load, then write rounds until told to stop."""
        self._loaded.set_result(self._writer.load())
        self._report([])
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._urgent, self._limits.flush_seconds)
                stop, hurried, self._urgent = self._stop, self._urgent, False
                taken, self._inbox = self._inbox, Pending()
                waiters, self._waiters = self._waiters, []
            self._writer.round(taken, force=hurried)
            self._report(waiters)
            if stop:
                self._writer.close()
                return

    def _report(self, waiters: list[Future[bool]]) -> None:
        writer = self._writer
        with self._wake:
            self._notices = [*self._notices, *writer.notices][-_NOTICES:]
        writer.notices.clear()
        self._health = RecorderHealth(
            degraded=writer.degraded,
            waiting_incidents=len(writer.pending.incidents),
            waiting_samples=len(writer.pending.samples),
            dropped=writer.pending.dropped,
        )
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(not writer.pending)


class _Writer:
    """The thread's side: the open file, what still waits, and when to try again."""

    def __init__(self, path: Path, limits: RecordLimits, boot_id: str, clock: Clock) -> None:
        self._path = path
        self._limits = limits
        self._boot_id = boot_id
        self._clock = clock
        self._began = clock.now()
        self._file: RecordFile | None = None
        self._ends: Mapping[str, Mapping[str, int]] = {}
        self._damaged = False
        self._pause = limits.retry_seconds
        self._retry_at = 0.0
        self._trim_at = 0.0
        self.pending = Pending()
        self.degraded: str | None = None
        self.notices: list[Notice] = []

    def load(self) -> Loaded:
        """Open the file and read it; empty where that fails."""
        file = self._open()
        if file is None:
            return Loaded()
        try:
            return record_store.load(file.connection, self._boot_id)
        except Exception as error:  # noqa: BLE001 - whatever is in the file, the sidecar must start
            self._failed(error)
            return Loaded()

    def round(self, newer: Pending, *, force: bool) -> None:
        """Take over what came and try to write all; within a pause after a failure only what is forced is tried."""
        self.pending.absorb(newer)
        now = time.monotonic()
        if not self.pending or (now < self._retry_at and not force):
            return
        file = self._open()
        if file is None:
            return
        try:
            self._write(file)
        except Exception as error:  # noqa: BLE001 - the thread must live; the error becomes the degraded state
            self._failed(error)
            return
        self._succeeded(file, now)

    def close(self) -> None:
        """Close the file; its log goes into the tables by that."""
        if self._file is not None:
            try:
                self._file.close()
            except (sqlite3.Error, OSError) as error:
                self.degraded = f"the record did not close: {error}"
            self._file = None

    def _open(self) -> RecordFile | None:
        if self._file is not None and not self._file.still_there():
            self.notices.append(Notice("record_gone", f"{self._path} was removed or replaced; a new record begins"))
            self.close()
        if self._file is None:
            try:
                self._file = open_record(self._path, self._clock.now().wall_s, damaged=self._damaged)
                self.notices += self._file.notices
                self._damaged = False
                record_store.keep_counts(self._file.connection, self._ends)
                self._ends = record_store.read_ends(self._file.connection)
            except (RecordUnavailableError, sqlite3.Error) as error:
                self.close()
                self._later(str(error))
        return self._file

    def _write(self, file: RecordFile) -> None:
        """Write all that waits; where the disk is full, let the oldest rows in the file make room, once."""
        try:
            record_store.write(file.connection, self.pending, self._boot_id)
        except sqlite3.Error as error:
            if not _is_full(error):
                raise
            file.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
            record_room.drop_oldest(file.connection)
            record_store.write(file.connection, self.pending, self._boot_id)

    def _succeeded(self, file: RecordFile, now: float) -> None:
        if self.degraded is not None:
            self.notices.append(Notice("record_recovered", f"{self._path} is written again"))
        ended = bool(self.pending.incidents)
        self.pending = Pending(dropped=self.pending.dropped)
        self.degraded, self._pause, self._retry_at = None, self._limits.retry_seconds, 0.0
        try:
            if ended:
                self._ends = record_store.read_ends(file.connection)
            if now >= self._trim_at:
                self._trim_at = now + _TRIM_SECONDS
                record_room.trim(file.connection, self._limits, self._oldest())
        except sqlite3.Error as error:
            self._failed(error)

    def _oldest(self) -> float | None:
        """The oldest wall time to keep; None while the wall clock has jumped, so a jump deletes nothing."""
        now = self._clock.now()
        drift = (now.wall_s - self._began.wall_s) - (now.monotonic_s - self._began.monotonic_s)
        return None if abs(drift) > _JUMP_SECONDS else now.wall_s - self._limits.keep_seconds

    def _failed(self, error: Exception) -> None:
        """Close the file, to be opened again after a pause; a damaged one is replaced at once.

        On a full disk it stays open, as opening it again would take space.
        """
        damaged = isinstance(error, sqlite3.Error) and is_damage(error)
        if not _is_full(error):
            self.close()
        self._later(f"the record is not written: {error}")
        if damaged:
            self._damaged, self._retry_at = True, 0.0

    def _later(self, reason: str) -> None:
        if self.degraded is None:
            self.notices.append(Notice("record_degraded", reason))
        self.degraded = reason
        self._retry_at = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_RETRY_SECONDS)


def _is_full(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def decode_judge(memory: bytes, kind: type[T]) -> T | None:
    """Read a judge's memory back; None where it was written by a release with another shape."""
    try:
        return msgspec.json.decode(memory, type=kind)
    except msgspec.MsgspecError:
        return None
