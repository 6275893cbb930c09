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
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sidecar.board import Event, Incident
from sidecar.clock import Clock, SystemClock
from sidecar.health.values import Judgement
from sidecar.outputs.record_file import Notice
from sidecar.outputs.record_rows import row
from sidecar.outputs.record_series import Series
from sidecar.outputs.record_store import IncidentRow, Loaded, Pending, RecordLimits, SampleRow
from sidecar.outputs.record_writer import Writer
from sidecar.outputs.shape import encode
from sidecar.sample import Sample
from sidecar.verdict.values import EndEvidence

T = TypeVar("T")

_CLOSE_SECONDS: Final = 5.0
_CLOSE_STEP_SECONDS: Final = 0.01
_NOTICES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderHealth:
    """How the recorder does. `degraded` None: everything that was put is on disk or will be within a second."""

    degraded: str | None
    waiting_incidents: int
    waiting_samples: int
    dropped: int
    incidents: int | None = None  # in the record; None: not opened yet


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
        self._writer = Writer(Path(path), self._limits, boot_id, self._clock)
        self._known: Loaded | None = None
        self._tried: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    async def load(self) -> Loaded:
        """Start the thread and read what the record knows; empty where it cannot be had within `load_seconds`."""
        try:
            self._thread.start()
        except RuntimeError as error:  # no thread to be had (pids limit): nothing is kept, but all else works
            self._stop = True
            self._health = replace(self._health, degraded=f"the recorder has no thread: {error}")
            return Loaded()
        tried = asyncio.shield(asyncio.wrap_future(self._tried))  # the thread must find it pending, however late
        with suppress(TimeoutError):
            await asyncio.wait_for(tried, self._limits.load_seconds)
        return self.take_late() or Loaded()

    def take_late(self) -> Loaded | None:
        """Give what the record knew, once, where it could be opened only after `load`. None: nothing new.

        It was read before anything of this life of the sidecar was written, so its counts come on top.
        """
        with self._wake:
            known, self._known = self._known, None
        return known

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

    def put_incident(self, incident: Incident, evidence: EndEvidence | None = None) -> None:
        """Keep an incident with the model's last minute and what its verdict rests on, at once."""
        series = self._series.get(incident.model)
        with self._wake:
            self._inbox.add_incident(IncidentRow(incident, series.blob() if series else None, evidence))
            self._hurry()

    def refine_incident(self, incident: Incident, evidence: EndEvidence | None = None) -> None:
        """Keep what is known of it now in place of what was; it counts once, when it first says as what."""
        with self._wake:
            self._inbox.add_incident(IncidentRow(incident, None, evidence))
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
        deadline_s = time.monotonic() + _CLOSE_SECONDS
        # Not by a thread of the pool, which may be stuck as a whole.
        while self._thread.is_alive() and time.monotonic() < deadline_s:  # noqa: ASYNC110 - a thread sets no event
            await asyncio.sleep(_CLOSE_STEP_SECONDS)

    def _hurry(self) -> None:
        self._urgent = True
        self._wake.notify()

    def _run(self) -> None:
        """The thread: load, then write rounds until told to stop."""
        self._writer.open()
        self._report([])
        self._tried.set_result(None)
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
            self._known = writer.loaded or self._known
        writer.notices.clear()
        writer.loaded = None
        self._health = RecorderHealth(
            degraded=writer.degraded,
            waiting_incidents=len(writer.pending.incidents),
            waiting_samples=len(writer.pending.samples),
            dropped=writer.pending.dropped,
            incidents=writer.incidents,
        )
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(not writer.pending)


def decode_judge(memory: bytes, kind: type[T]) -> T | None:
    """Read a judge's memory back; None where it was written by a release with another shape."""
    try:
        return msgspec.json.decode(memory, type=kind)
    except msgspec.MsgspecError:
        return None
