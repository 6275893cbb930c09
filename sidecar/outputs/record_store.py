"""What is written to the record and read back: plain SQL over one open connection, in the recorder's thread."""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Final

import msgspec

from guard.model import LifeId
from sidecar import distribution
from sidecar.board import Event, Incident, kept
from sidecar.outputs.evidence_shape import evidence_from, pack_evidence
from sidecar.outputs.record_file import SCHEMA_VERSION
from sidecar.outputs.shape import clean, encode, incident_document, incident_from, iso, plain
from sidecar.sample import Instant
from sidecar.verdict.values import EndEvidence

_EVENTS_LOADED: Final = 500
_INCIDENTS_LOADED: Final = 50
_LIVES_LOADED: Final = 10_000
EVIDENCE_KEPT: Final = 16
"""Of the newest ends, so that the next sidecar may judge them anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLimits:
    """Bounds on disk and in memory."""

    max_bytes: int = 64 << 20
    """Size on disk, write-ahead log included. Oldest samples go first, then events, incidents last."""
    keep_seconds: float = 7 * 86400.0
    """Samples older than this go. Events and incidents stay until the size asks for their place."""
    sample_seconds: float = 1.0
    """Pause between two samples of one model on disk."""
    series_seconds: float = 60.0
    """How much of the full-rate past an incident keeps."""
    flush_seconds: float = 1.0
    """Longest wait before a sample or event is committed; an incident is committed at once."""
    retry_seconds: float = 1.0
    """First pause after a failure; doubles up to half a minute."""
    load_seconds: float = 5.0
    """How long the start waits for the record before it goes on without."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One tick as it is stored. `row` is JSON (sidecar.outputs.record_rows)."""

    model: str
    at: Instant
    row: bytes


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One incident as it is stored. `series`: the full-rate past as zlib members of JSON lines, oldest first."""

    incident: Incident
    series: bytes | None
    evidence: EndEvidence | None = None


@dataclass(slots=True)
class Pending:
    """What waits to be written, within bounds. Samples make room first; no incident is dropped before the 500th."""

    samples: deque[SampleRow] = field(default_factory=lambda: deque(maxlen=1200))
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=5000))
    incidents: dict[str, IncidentRow] = field(default_factory=dict)
    judges: dict[str, bytes] = field(default_factory=dict)
    dropped: int = 0

    def add_sample(self, row: SampleRow) -> None:
        """Queue a sample; the oldest one goes where there is no room."""
        self.dropped += len(self.samples) == self.samples.maxlen
        self.samples.append(row)

    def add_event(self, event: Event) -> None:
        """Queue an event; the oldest one goes where there is no room."""
        self.dropped += len(self.events) == self.events.maxlen
        self.events.append(event)

    def add_incident(self, row: IncidentRow) -> None:
        """Queue an incident or its refined form. Where many wait, older ones lose their series, not themselves."""
        before = self.incidents.get(row.incident.id)
        kept = row
        if before is not None:
            kept = IncidentRow(row.incident, row.series or before.series, row.evidence or before.evidence)
        self.incidents[row.incident.id] = kept
        held = [one for one in self.incidents.values() if one.series is not None]
        if len(held) > _SERIES_WAITING:
            self.incidents[held[0].incident.id] = IncidentRow(held[0].incident, None)
        if len(self.incidents) > _INCIDENTS_WAITING:
            del self.incidents[next(iter(self.incidents))]
            self.dropped += 1

    def absorb(self, newer: Pending) -> None:
        """Take over what came later."""
        for sample in newer.samples:
            self.add_sample(sample)
        for event in newer.events:
            self.add_event(event)
        for incident in newer.incidents.values():
            self.add_incident(incident)
        self.judges |= newer.judges
        self.dropped += newer.dropped

    def part(self) -> Pending:
        """What goes into one transaction: little enough to fit the log that is already there on a full disk."""
        first = next(iter(self.incidents.items()), None)
        return Pending(
            samples=deque(islice(self.samples, _ROWS_AT_ONCE)),
            events=deque(islice(self.events, _ROWS_AT_ONCE)),
            incidents=dict([first]) if first else {},
            judges=dict(self.judges),
        )

    def remove(self, part: Pending) -> None:
        """Drop what `part` gave, after it was committed."""
        for _ in part.samples:
            self.samples.popleft()
        for _ in part.events:
            self.events.popleft()
        for name in part.incidents:
            del self.incidents[name]
        self.judges.clear()

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self.samples or self.events or self.incidents or self.judges)


_ROWS_AT_ONCE: Final = 50
_SERIES_WAITING: Final = 32  # about 100 KiB each
_INCIDENTS_WAITING: Final = 500
_SERIES_BYTES: Final = 64 << 20  # unpacked; a minute at 10 Hz is 2 to 10 MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the record knew at the start. `judges`: model to JSON, of this boot only, as its times are monotonic."""

    ends: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    last_event_id: int = 0
    events: tuple[Event, ...] = ()  # newest last
    incidents: tuple[Incident, ...] = ()  # newest first
    lives: frozenset[LifeId] = frozenset()  # whose end is already in the record
    judges: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    evidence: Mapping[str, EndEvidence] = field(default_factory=lambda: MappingProxyType({}))  # by id, of the newest


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit at the end, or roll back; a rollback that fails does not hide the first error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            if connection.in_transaction:  # SQLite itself rolls back on some errors, a full disk among them
                connection.execute("ROLLBACK")
        raise


def write(connection: sqlite3.Connection, pending: Pending, boot_id: str) -> None:
    """Write a part in one transaction. Raises `sqlite3.Error`; then nothing of it was written."""
    with transaction(connection):
        for row in pending.incidents.values():
            _write_incident(connection, row)
        connection.executemany(
            "INSERT INTO events (id, boot_id, model, wall_s, monotonic_s, kind, text, fields) VALUES (?,?,?,?,?,?,?,?)",
            [_event_row(event, boot_id) for event in pending.events],
        )
        connection.executemany(
            "INSERT INTO samples (boot_id, model, wall_s, monotonic_s, row) VALUES (?,?,?,?,?)",
            [
                (boot_id, clean(one.model), one.at.wall_s, one.at.monotonic_s, one.row.decode())
                for one in pending.samples
            ],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO judge (model, boot_id, memory) VALUES (?,?,?)",
            [(clean(model), boot_id, memory.decode()) for model, memory in pending.judges.items()],
        )


def _event_row(event: Event, boot_id: str) -> tuple[object, ...]:
    at, fields = event.at, encode(plain(event.fields)).decode()
    return (
        event.id,
        boot_id,
        clean(event.model),
        at.wall_s,
        at.monotonic_s,
        clean(event.kind),
        clean(event.text),
        fields,
    )


def _write_incident(connection: sqlite3.Connection, row: IncidentRow) -> None:
    """Insert, or refine what is there. An end is counted once, in the transaction that says what it is counted as."""
    key = clean(row.incident.id)
    known = connection.execute("SELECT document FROM incidents WHERE id=?", (key,)).fetchone()
    before = None if known is None else incident_from(known[0].encode())
    counted = None if before is None else before.counted_as
    incident = row.incident if counted is None else replace(row.incident, counted_as=counted)
    document = encode(incident_document(incident)).decode()
    last = None if incident.last_sample is None else encode(plain(incident.last_sample)).decode()
    if incident.main and incident.counted_as is not None and counted is None:
        connection.execute(
            "INSERT INTO counters (model, cause, count) VALUES (?,?,1) "
            "ON CONFLICT (model, cause) DO UPDATE SET count=count+1",
            (clean(incident.model), incident.counted_as.value),
        )
    if known is not None:
        connection.execute(
            "UPDATE incidents SET document=?, last_sample=coalesce(?, last_sample), series=coalesce(?, series) "
            "WHERE id=?",
            (document, last, row.series, key),
        )
    else:
        connection.execute(
            "INSERT INTO incidents (id, model, wall_s, document, last_sample, series) VALUES (?,?,?,?,?,?)",
            (key, clean(incident.model), incident.at.wall_s, document, last, row.series),
        )
    if row.evidence is not None:
        _write_evidence(connection, key, row.evidence)


def _write_evidence(connection: sqlite3.Connection, key: str, evidence: EndEvidence) -> None:
    """Keep what the verdict rests on, for the newest ends: nobody judges an old one anew."""
    connection.execute("INSERT OR REPLACE INTO evidence (id, packed) VALUES (?,?)", (key, pack_evidence(evidence)))
    connection.execute(
        "DELETE FROM evidence WHERE id NOT IN (SELECT id FROM incidents ORDER BY n DESC LIMIT ?)", (EVIDENCE_KEPT,)
    )


def keep_counts(connection: sqlite3.Connection, ends: Mapping[str, Mapping[str, int]]) -> None:
    """Carry counts over into a new file, after the old one was damaged or removed in the middle."""
    with transaction(connection):
        connection.executemany(
            "INSERT INTO counters (model, cause, count) VALUES (?,?,?) "
            "ON CONFLICT (model, cause) DO UPDATE SET count=max(count, excluded.count)",
            [(model, cause, count) for model, causes in ends.items() for cause, count in causes.items()],
        )


def note_start(connection: sqlite3.Connection, boot_id: str, wall_s: float) -> None:
    """Say in the record itself what wrote it last and where: it may be read elsewhere."""
    system = os.uname()
    facts = {
        "schema": str(SCHEMA_VERSION),
        "boot_id": boot_id,
        "opened": iso(wall_s),
        "release": distribution.release() or "checkout",
        "kernel": system.release,
        "machine": system.machine,
    }
    with transaction(connection):
        connection.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?,?)", facts.items())


def read_ends(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """Ends a model and class."""
    ends: dict[str, dict[str, int]] = {}
    for model, cause, count in connection.execute("SELECT model, cause, count FROM counters"):
        ends.setdefault(model, {})[cause] = count
    return ends


def count_incidents(connection: sqlite3.Connection) -> int:
    """Ends in the record."""
    count: int = connection.execute("SELECT count(*) FROM incidents").fetchone()[0]
    return count


def load(connection: sqlite3.Connection, boot_id: str) -> Loaded:
    """Read back what a start needs.

    A row that is not in our shape is left out, and so is a judge's memory where the boot is not known ("").
    """
    newest = connection.execute("SELECT document FROM incidents ORDER BY n DESC LIMIT ?", (_LIVES_LOADED,))
    incidents = [one for (document,) in newest if (one := incident_from(document.encode())) is not None]
    rows = connection.execute(
        "SELECT id, wall_s, monotonic_s, model, kind, text, fields FROM events ORDER BY n DESC LIMIT ?",
        (_EVENTS_LOADED,),
    ).fetchall()
    judges = connection.execute("SELECT model, memory FROM judge WHERE boot_id=?", (boot_id,)).fetchall()
    return Loaded(
        ends=read_ends(connection),
        last_event_id=connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0],
        events=tuple(event for row in reversed(rows) if (event := _event(row)) is not None),
        incidents=kept(incidents, _INCIDENTS_LOADED),
        lives=frozenset(one.life for one in incidents),
        judges={model: memory.encode() for model, memory in judges if boot_id},
        evidence=_load_evidence(connection),
    )


def _load_evidence(connection: sqlite3.Connection) -> dict[str, EndEvidence]:
    rows = connection.execute("SELECT id, packed FROM evidence LIMIT ?", (2 * EVIDENCE_KEPT,))
    read = ((key, evidence_from(packed) if isinstance(packed, bytes) else None) for key, packed in rows)
    return {key: evidence for key, evidence in read if evidence is not None}


def _event(row: tuple[int, float, float, str, str, str, str]) -> Event | None:
    number, wall_s, monotonic_s, model, kind, text, fields = row
    try:
        read = msgspec.json.decode(fields.encode(), type=dict[str, str | int | float | bool | None])
    except msgspec.MsgspecError:
        return None
    return Event(id=number, at=Instant(monotonic_s, wall_s), model=model, kind=kind, text=text, fields=read)


def series_lines(blob: bytes) -> list[bytes]:
    """The rows of a stored series, oldest first. Raises `zlib.error` on damage, or if it unpacks to too much."""
    lines: list[bytes] = []
    left = _SERIES_BYTES
    while blob:
        reader = zlib.decompressobj()
        data = reader.decompress(blob, left)
        left -= len(data)
        if left <= 0 or reader.unconsumed_tail:
            raise zlib.error(f"more than {_SERIES_BYTES} bytes unpacked")
        lines += data.splitlines()
        blob = reader.unused_data
    return lines
