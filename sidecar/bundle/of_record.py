"""The parts that come from the record: ends, what led to them, what happened, and facts about the file itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sidecar.bundle.parts import Hiding, Part, document, json_lines
from sidecar.outputs.shape import iso
from sidecar.record.reading import EventRow, IncidentRow, JsonObject, RecordReader, SampleRow

_INCIDENTS: Final = 200
_CLOSELY: Final = 10
"""So many of the newest ends are told with what was around them."""
_BEFORE_SECONDS: Final = 300.0
_AFTER_SECONDS: Final = 60.0
_LATEST_SECONDS: Final = 900.0


def parts(reader: RecordReader, hiding: Hiding) -> tuple[Part, ...]:
    """List them, most important first. What they hold is learned at once, so that names are the same in all."""
    incidents = reader.incidents(limit=_INCIDENTS)
    close = incidents[:_CLOSELY]
    for row in (*map(_incident, incidents), *_events(reader), *_samples(reader, close)):
        hiding.learn(row)
    names = [f"series/{number:02}.jsonl" for number in range(1, len(close) + 1)]
    return (
        Part(
            "incidents.jsonl",
            f"the last {_INCIDENTS} ends, oldest first: verdict, evidence, and the last sample before",
            lambda: json_lines(hiding.value(_incident(row)) for row in reversed(incidents)),
        ),
        Part("record.json", "facts about the record itself", lambda: document(hiding.value(_facts(reader)))),
        Part(
            "events.jsonl",
            "what happened, oldest first",
            lambda: json_lines(hiding.value(row) for row in _events(reader)),
        ),
        Part(
            "samples.jsonl",
            f"a sample a second: {_BEFORE_SECONDS / 60:.0f} min before each of the last {_CLOSELY} ends, one after, "
            f"and the last {_LATEST_SECONDS / 60:.0f} min",
            lambda: json_lines(hiding.value(row) for row in _samples(reader, close)),
        ),
        *(_series(name, incident, hiding) for name, incident in zip(names, close, strict=True)),
    )


def _series(name: str, incident: IncidentRow, hiding: Hiding) -> Part:
    shown = hiding.value({"id": incident.id})["id"]
    return Part(
        name,
        f"the last minute before end {shown} at full rate",
        lambda: json_lines(hiding.value(row) for row in incident.series),
    )


def _incident(incident: IncidentRow) -> JsonObject:
    return {**incident.document, "id": incident.id, "model": incident.model, "last_sample": incident.last_sample}


def _events(reader: RecordReader) -> Iterator[JsonObject]:
    return map(_event, reader.each_event())


def _event(event: EventRow) -> JsonObject:
    return {
        "id": event.id,
        "at": iso(event.wall_s),
        "wall_s": event.wall_s,
        "monotonic_s": event.monotonic_s,
        "boot_id": event.boot_id,
        "model": event.model,
        "kind": event.kind,
        "text": event.text,
        "fields": event.fields,
    }


def _samples(reader: RecordReader, close: tuple[IncidentRow, ...]) -> Iterator[JsonObject]:
    """Give the samples around these ends and the latest ones."""
    last = reader.last_wall_s() or 0.0
    spans = [(end.wall_s - _BEFORE_SECONDS, end.wall_s + _AFTER_SECONDS) for end in close]
    spans.append((last - _LATEST_SECONDS, last))
    since = min(start for start, _ in spans)
    for sample in reader.samples(since_wall_s=since):
        if any(start <= sample.wall_s <= end for start, end in spans):
            yield _sample(sample)


def _sample(sample: SampleRow) -> JsonObject:
    return {"model": sample.model, "boot_id": sample.boot_id, "at": iso(sample.wall_s), **sample.row}


def _facts(reader: RecordReader) -> JsonObject:
    return {
        "meta": reader.meta(),
        "models": [{"model": name, "ends": reader.ends().get(name, 0)} for name in reader.models()],
        "boots": [{"boot_id": boot.id, "since": iso(boot.first_wall_s)} for boot in reader.boots()],
        "samples": reader.count_samples(),
        "last": iso(reader.last_wall_s() or 0.0),
        "rows_in_another_shape": reader.skipped,
    }
