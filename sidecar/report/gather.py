"""From an open record to the story of one end. The edge of the package: everything else here is pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from sidecar.record.progress import bar
from sidecar.record.reading import EventRow, IncidentRow, RecordError, RecordReader, SampleRow
from sidecar.record.redact import Redactor
from sidecar.record.words import public_words
from sidecar.report import rows
from sidecar.report.clean import clean
from sidecar.report.story import Story
from sidecar.report.tell import EVENTS_AFTER_SECONDS, Material, tell

_SLACK_SECONDS = 5.0
"""Rows are found by the wall clock and placed by the monotonic one, which may differ a little."""
_WORTH_A_BAR_SECONDS = 3600.0
"""A longer past takes a second or more to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to tell. `incident`: the beginning of an id; None: the newest end of a main process, or else of a child."""

    incident: str | None
    model: str | None
    seconds: float
    redact: bool


def find(record: RecordReader, wanted: Wanted) -> IncidentRow:
    """Find the end. Raises `RecordError` with what there is instead."""
    if wanted.incident is not None:
        return record.incident(wanted.incident)
    found = ends(record, wanted.model)
    return next((one for one in found if one.document.get("main") is True), found[0])


def ends(record: RecordReader, model: str | None) -> tuple[IncidentRow, ...]:
    """Give all ends, newest first. Raises `RecordError` where there is none."""
    models = record.models()
    if model is not None and model not in models:
        known = f"; it knows {', '.join(models)}" if models else ""
        raise RecordError(f"{record.path} knows no model {model!r}{known}")
    unreadable = record.skipped
    found = record.incidents(model)
    if not found:
        whose = "" if model is None else f" of model {model}"
        if lost := record.skipped - unreadable:
            why = f"({lost} left out): written by another release, or damaged"
            raise RecordError(f"no end{whose} in {record.path} is in the shape of this release {why}")
        raise RecordError(f"{record.path} holds no end{whose} yet: nothing ended while the sidecar watched")
    return _newest_first(record, found)


def _newest_first(record: RecordReader, found: tuple[IncidentRow, ...]) -> tuple[IncidentRow, ...]:
    """Sort by boot and its clock: ends that a sidecar found when it came back were written in any order."""
    boots = {boot.id: number for number, boot in enumerate(record.boots())}

    def when(row: IncidentRow) -> tuple[int, float]:
        stored = rows.document(row.document)
        if stored is None:
            return -1, 0.0
        return boots.get(stored.life.boot_id, -1), _on_its_own_clock(record, row, stored).monotonic_s

    return tuple(sorted(found, key=when, reverse=True))


def story(record: RecordReader, wanted: Wanted) -> Story:
    """Tell the end that is wanted. Raises `RecordError`."""
    row = find(record, wanted)
    stored = rows.document(row.document)
    if stored is None:
        raise RecordError(
            f"incident {row.id} in {record.path} is not in the shape of this release; try a newer oomguard"
        )
    stored = _on_its_own_clock(record, row, stored)
    about = _About(record, row, stored, wanted)
    document = rows.document(about.shown({**row.document, "monotonic_s": stored.monotonic_s}))
    if document is None:
        raise RecordError(f"incident {row.id} in {record.path} cannot be shown")
    return tell(
        Material(
            document=document,
            rows=about.rows(),
            events=about.events(),
            meta=about.shown(record.meta()),
            seconds=min(wanted.seconds, about.oldest_seconds()),
        )
    )


def _on_its_own_clock(record: RecordReader, row: IncidentRow, stored: rows.Document) -> rows.Document:
    """Bring an end that no sidecar saw to the clock of its boot: it was placed on that of the boot that found it."""
    if row.last_sample is not None:
        return stored
    offset_s = next((boot.offset_s for boot in record.boots() if boot.id == stored.life.boot_id), None)
    return stored if offset_s is None else replace(stored, monotonic_s=stored.wall_s - offset_s)


class _About:
    """Reads what belongs to one end, cleaned, and with stand-ins for names where that is wanted."""

    def __init__(self, record: RecordReader, row: IncidentRow, stored: rows.Document, wanted: Wanted) -> None:
        self._record = record
        self._row = row
        self._stored = stored
        self._span = (row.wall_s - wanted.seconds - _SLACK_SECONDS, row.wall_s + _SLACK_SECONDS)
        self._series = row.series
        self._events = [
            one
            for one in record.events(None, self._span[0], row.wall_s + EVENTS_AFTER_SECONDS)
            if one.model in {row.model, ""} and one.boot_id == stored.life.boot_id
        ]
        self._redactor = self._learned() if wanted.redact else None

    def _learned(self) -> Redactor:
        redactor = Redactor(public_words())
        for value in (self._row.document, self._row.last_sample, *self._series, *map(_fields, self._events)):
            redactor.learn(value)
        return redactor

    def shown(self, stored: Any) -> Any:  # noqa: ANN401 - JSON
        """Give JSON as it may be shown."""
        return clean(stored if self._redactor is None else self._redactor.value(stored))

    def _samples(self) -> Iterator[SampleRow]:
        for one in self._record.samples(self._row.model, *self._span):
            if one.boot_id == self._stored.life.boot_id:
                yield one

    def oldest_seconds(self) -> float:
        """Give how long before the end the oldest reading or event in reach lies; 0 without any."""
        first = next(self._samples(), None)
        times = [one.monotonic_s for one in (first, *self._events[:1]) if one is not None]
        times += [read.monotonic_s for one in self._series[:1] if (read := rows.row(one)) is not None]
        return self._stored.monotonic_s - min(times, default=self._stored.monotonic_s)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Give ticks: the last minute at full rate, and the rest as it was sampled."""
        yield from map(self.shown, self._series)
        long = self._span[1] - self._span[0] > _WORTH_A_BAR_SECONDS
        with bar("reading", None) if long else nullcontext(lambda _: None) as more:
            for sample in self._samples():
                yield self.shown(sample.row)
                more(1)

    def events(self) -> tuple[EventRow, ...]:
        """Give the events around the end."""
        return tuple(_event(one, self.shown(_fields(one))) for one in self._events)


def _fields(event: EventRow) -> dict[str, Any]:
    return {
        "model": event.model,
        "boot_id": event.boot_id,
        "kind": event.kind,
        "text": event.text,
        "fields": dict(event.fields),
    }


def _event(event: EventRow, shown: Mapping[str, Any]) -> EventRow:
    return EventRow(
        id=event.id,
        model=shown["model"],
        wall_s=event.wall_s,
        monotonic_s=event.monotonic_s,
        boot_id=shown["boot_id"],
        kind=shown["kind"],
        text=shown["text"],
        fields=shown["fields"],
    )
