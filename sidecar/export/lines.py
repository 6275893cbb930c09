"""Rows of the record as lines of one table: in the order of one clock, each once. Few are in memory at once.

Rules
    * Order is by boot, then by the monotonic clock of that boot: the wall clock may jump. An end that was found after a
      reboot is on the clock of the boot that found it, so it stands just before that boot.
    * The last minute before an incident is there at full rate. Its rows that are also among the samples come once.
    * `ends` is how often the model's main process has ended up to a line, also by ends that the record no longer holds.
      Lines outside of the span count, they are only not given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from typing import Any, Final, TypeAlias

from sidecar.export.columns import Kind
from sidecar.outputs.shape import iso
from sidecar.record.reading import Boot, EventRow, IncidentRow, JsonObject, RecordReader, SampleRow, Span

Row: TypeAlias = dict[str, Any]
_ORDER: Final = {Kind.SAMPLE: 0, Kind.EVENT: 1, Kind.INCIDENT: 2}


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table. `row` is nested; the columns know where their values stand in it."""

    kind: Kind
    boot: int
    row: Row

    @property
    def key(self) -> tuple[int, float, int]:
        """Where it stands in the table."""
        return self.boot, self.row["monotonic_s"], _ORDER[self.kind]


def lines(reader: RecordReader, span: Span) -> Iterator[Line]:
    """Give every line of a span, oldest first. Raises `RecordError` where the record fails."""
    boots = Boots(reader.boots())
    models = reader.models() if span.model is None else (span.model,)
    streams: list[Iterator[Line]] = [
        (_sample(row, boots) for row in reader.samples(span.model, span.since_wall_s, span.until_wall_s)),
        (_event(row, boots) for row in reader.each_event(span.model, span.since_wall_s, span.until_wall_s)),
        (_incident(row, boots) for row in reader.each_incident(span.model)),
        *(_series(reader.each_incident(model, series=True), boots) for model in models),
    ]
    ends = _unheld(reader, span.model)
    last: dict[str, tuple[int, float]] = {}
    for line in merge(*streams, key=lambda line: line.key):
        model = line.row["model"]
        if line.kind is Kind.SAMPLE:
            if last.get(model) == line.key[:2]:
                continue
            last[model] = line.key[:2]
        ends[model] = ends.get(model, 0) + (line.kind is Kind.INCIDENT and line.row.get("main") is True)
        if _within(span, line.row["wall_s"]):
            line.row["ends"] = ends[model]
            yield line


class Boots:
    """The boots of a record, to place what does not say which one it is of."""

    def __init__(self, boots: tuple[Boot, ...]) -> None:
        self._boots = boots or (Boot("", 0.0, 0.0),)
        self._places = {boot.id: place for place, boot in enumerate(self._boots)}

    def place(self, boot_id: str) -> int:
        """Give the number of a boot."""
        return self._places.get(boot_id, len(self._boots))

    def of(self, wall_s: float, monotonic_s: float) -> tuple[int, Boot]:
        """Give the boot whose clocks are as far apart as these two."""
        apart = wall_s - monotonic_s
        return min(enumerate(self._boots), key=lambda numbered: abs(numbered[1].offset_s - apart))


def _unheld(reader: RecordReader, model: str | None) -> dict[str, int]:
    """Count the ends of each model whose incidents the record no longer holds. The newest may not be counted yet."""
    counted = dict(reader.ends())
    for incident in reader.each_incident(model):
        held = incident.document.get("main") is True and incident.document.get("counted_as", "always") is not None
        if held and counted.get(incident.model, 0) > 0:
            counted[incident.model] -= 1
    return counted


def _within(span: Span, wall_s: float) -> bool:
    since, until = span.since_wall_s, span.until_wall_s
    return (since is None or since <= wall_s) and (until is None or wall_s <= until)


def _sample(sample: SampleRow, boots: Boots) -> Line:
    row = _seen(sample.row)
    _stamp(row, sample.model, sample.wall_s, round(sample.monotonic_s, 3), sample.boot_id)
    return Line(Kind.SAMPLE, boots.place(sample.boot_id), row | {"kind": Kind.SAMPLE.value})


def _event(event: EventRow, boots: Boots) -> Line:
    row: Row = {"event_id": event.id, "event_kind": event.kind, "event_text": event.text, "event_fields": event.fields}
    _stamp(row, event.model, event.wall_s, event.monotonic_s, event.boot_id)
    return Line(Kind.EVENT, boots.place(event.boot_id), row | {"kind": Kind.EVENT.value})


def _incident(incident: IncidentRow, boots: Boots) -> Line:
    row = dict(incident.document)
    monotonic_s = row.get("monotonic_s")
    if not isinstance(monotonic_s, float):
        monotonic_s = 0.0
    place, boot = boots.of(incident.wall_s, monotonic_s)
    _stamp(row, incident.model, incident.wall_s, monotonic_s, boot.id)
    return Line(Kind.INCIDENT, place, row | {"id": incident.id, "kind": Kind.INCIDENT.value})


def _series(incidents: Iterable[IncidentRow], boots: Boots) -> Iterator[Line]:
    """Give the full-rate rows of one model; where two minutes overlap, each row once."""
    last = (-1, float("-inf"))
    for incident in incidents:
        for stored in incident.series:
            wall_s, monotonic_s = stored.get("wall_s"), stored.get("monotonic_s")
            if not isinstance(wall_s, float) or not isinstance(monotonic_s, float):
                continue
            place, boot = boots.of(wall_s, monotonic_s)
            if (place, monotonic_s) > last:
                last = (place, monotonic_s)
                row = _seen(stored)
                _stamp(row, incident.model, wall_s, monotonic_s, boot.id)
                yield Line(Kind.SAMPLE, place, row | {"kind": Kind.SAMPLE.value})


def _stamp(row: Row, model: str, wall_s: float, monotonic_s: float, boot_id: str) -> None:
    row |= {
        "at": iso(wall_s),
        "wall_s": round(wall_s, 3),
        "monotonic_s": round(monotonic_s, 3),
        "boot_id": boot_id,
        "model": model,
    }


def _seen(stored: JsonObject) -> Row:
    """Add what the columns of a sample take from lists: main process, sums, the first operation."""
    row = dict(stored)
    if "sight" in row:
        row.setdefault("hidden_ancestors", False)
    processes = [one for one in _list(row.get("processes")) if isinstance(one, Mapping)]
    row["main"] = next((one for one in processes if one.get("main") is True), None)
    row["alive"] = _alive([one for one in processes if one.get("alive") is True]) if "processes" in row else None
    operations = _list(row.get("operations"))
    row["operation"] = operations[0] if operations else None
    row["operations"] = len(operations)
    row["levels"] = [_level(one) for one in _list(row.get("levels"))]
    return row


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _alive(processes: list[Mapping[str, Any]]) -> Row:
    """Sum over living processes; a sum with an unknown part is unknown."""
    sums: Row = {"processes": len(processes)}
    for name in ("anon", "file", "shmem"):
        parts = [rss.get(name) if isinstance(rss := one.get("rss"), Mapping) else None for one in processes]
        known = [part for part in parts if isinstance(part, int)]
        sums[f"rss_{name}"] = sum(known) if parts and len(known) == len(parts) else None
    return sums


def _level(level: object) -> Row:
    if not isinstance(level, Mapping):
        return {}
    row = dict(level)
    if "version" in row:
        row.setdefault("gone", False)
    if row.get("events_local") == "same":
        row["events_local"] = row.get("events")
    return row
