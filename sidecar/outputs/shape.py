"""Values to JSON, one shape everywhere: status page, event stream, incidents, record.

A reading is an object: `{"value": 7}` or `{"unknown": "denied", "where": "/sys/..."}`, never 0 and never null. No limit
is the word "unlimited". Dataclasses become objects with the names of their fields, enums their value.
"""

from __future__ import annotations

import zlib
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from math import isfinite
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from guard.model import Known, LifeId, Unknown
from sidecar.board import Event, Incident, Judged, Packed
from sidecar.sample import Instant
from sidecar.verdict.values import Confidence, EndClass, Statement, Verdict

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

# Not the abstract Mapping and Sequence: asking those about a class asks every one of their subclasses in the process,
# which all remember the answer. One /status cost half a megabyte for good.
_MAPPINGS: Final = (dict, MappingProxyType)
_LISTS: Final = (list, tuple, set, frozenset)
_WINDOW_BITS: Final = 12
_MEMORY_LEVEL: Final = 5


def plain(value: object) -> Json:  # noqa: PLR0911 - one line for each kind of value
    """Turn a value of this project into what JSON can hold. Numbers that JSON lacks (inf, nan) become their names."""
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Known):
        return {"value": plain(value.value)}
    if isinstance(value, Unknown):
        return _unknown(value)
    if isinstance(value, Packed):
        return _unpacked(value)
    if isinstance(value, _MAPPINGS):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, _LISTS):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in _names(type(value))}
    return str(value)


def _unknown(reading: Unknown) -> dict[str, Json]:
    said: dict[str, Json] = {"unknown": reading.why.value, "where": reading.where}
    if reading.errno is not None:
        said["errno"] = reading.errno
    if reading.detail:
        said["detail"] = reading.detail
    return said


@lru_cache(maxsize=128)
def _names(kind: type) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


def clean(text: str) -> str:
    """A text that UTF-8 can hold: lone surrogates (odd file names, as os.fsdecode gives them) become "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def encode(document: object) -> bytes:
    """Turn a document of `plain` values into one line of JSON."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(_clean(document))


def _clean(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, _MAPPINGS):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


def pack(value: object) -> Packed:
    """Print a value as JSON in zlib with a small window: the usual one takes a quarter of a MiB while it works."""
    packer = zlib.compressobj(wbits=_WINDOW_BITS, memLevel=_MEMORY_LEVEL)
    return Packed(packer.compress(encode(plain(value))) + packer.flush())


def _unpacked(value: Packed) -> Json:
    document: Json = msgspec.json.decode(zlib.decompress(value.data))
    return document


def iso(wall_s: float) -> str:
    """Seconds since 1970 as UTC in ISO 8601 with milliseconds; a clock beyond the calendar as plain seconds."""
    try:
        return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):
        return f"{wall_s}s"


def event_document(event: Event) -> dict[str, Json]:
    """One event: id, at (ISO), wall_s, monotonic_s, model, kind, text, fields."""
    return {
        "id": event.id,
        "at": iso(event.at.wall_s),
        "wall_s": event.at.wall_s,
        "monotonic_s": event.at.monotonic_s,
        "model": event.model,
        "kind": event.kind,
        "text": event.text,
        "fields": plain(event.fields),
    }


def incident_document(incident: Incident) -> dict[str, Json]:
    """One incident in the public shape (docs/http.md), without its last sample."""
    verdict = incident.verdict
    return {
        "id": incident.id,
        "model": incident.model,
        "class": verdict.end_class.value,
        "confidence": verdict.confidence.value,
        "level": verdict.level,
        "at": iso(incident.at.wall_s),
        "wall_s": incident.at.wall_s,
        "monotonic_s": incident.at.monotonic_s,
        "verdict_after_seconds": incident.verdict_after_seconds,
        "summary": verdict.summary,
        "main": incident.main,
        "life": plain(incident.life),
        "fields": plain(verdict.fields),
        "evidence": [{"for": said.supports, "text": said.text, "source": said.source} for said in verdict.statements],
        "missing": list(verdict.missing),
        "next": list(verdict.next_steps),
        "history": [
            {
                "at": iso(one.at.wall_s),
                "wall_s": one.at.wall_s,
                "monotonic_s": one.at.monotonic_s,
                "class": one.end_class.value,
                "confidence": one.confidence.value,
                "summary": one.summary,
                "because": one.because,
            }
            for one in incident.history
        ],
        "counted_as": None if incident.counted_as is None else incident.counted_as.value,
    }


def incident_in_full(incident: Incident) -> dict[str, Json]:
    """One incident with its last sample and the counters latched after the end."""
    return {
        **incident_document(incident),
        "last_sample": plain(incident.last_sample),
        "levels_after": [] if incident.levels_after is None else plain(incident.levels_after),
    }


class _Said(msgspec.Struct, rename={"supports": "for"}):
    supports: bool
    text: str
    source: str


class _Judged(msgspec.Struct, rename={"end_class": "class"}):
    wall_s: float
    monotonic_s: float
    end_class: EndClass
    confidence: Confidence
    summary: str
    because: str


class _Incident(msgspec.Struct, rename={"end_class": "class", "next_steps": "next"}):
    """The stored shape, to check a record that anyone may have written to."""

    id: str
    model: str
    end_class: EndClass
    confidence: Confidence
    level: str | None
    wall_s: float
    monotonic_s: float
    verdict_after_seconds: float
    summary: str
    main: bool
    life: LifeId
    fields: dict[str, str | int | float | None]
    evidence: list[_Said]
    missing: list[str]
    next_steps: list[str]
    history: list[_Judged] = []
    counted_as: EndClass | msgspec.UnsetType | None = msgspec.UNSET
    """Not there in the record of a release that counted every end at once."""


def incident_from(document: bytes) -> Incident | None:
    """Read an incident back from its JSON, without samples; None where it is not in our shape."""
    try:
        read = msgspec.json.decode(document, type=_Incident)
    except msgspec.MsgspecError:
        return None
    verdict = Verdict(
        end_class=read.end_class,
        confidence=read.confidence,
        summary=read.summary,
        level=read.level,
        statements=tuple(Statement(said.supports, said.text, said.source) for said in read.evidence),
        missing=tuple(read.missing),
        next_steps=tuple(read.next_steps),
        fields=read.fields,
    )
    return Incident(
        id=read.id,
        at=Instant(read.monotonic_s, read.wall_s),
        model=read.model,
        life=read.life,
        main=read.main,
        verdict=verdict,
        verdict_after_seconds=read.verdict_after_seconds,
        history=tuple(
            Judged(
                at=Instant(one.monotonic_s, one.wall_s),
                end_class=one.end_class,
                confidence=one.confidence,
                summary=one.summary,
                because=one.because,
            )
            for one in read.history
        ),
        counted_as=read.end_class if isinstance(read.counted_as, msgspec.UnsetType) else read.counted_as,
    )
