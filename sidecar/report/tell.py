"""One end told from what the record holds of it. Pure: all of the record's values come in, no clock and no file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.record.reading import EventRow
from sidecar.report import answer, charts, facts, lanes, rows
from sidecar.report.frames import Frame, Window, first_after_end, quiet_before_end, thin
from sidecar.report.rows import Document, Row
from sidecar.report.story import Story

_AFTER_RATIO: Final = 0.02
"""How much of the curves is shown after the end: a little, so that the end is seen as one."""
EVENTS_AFTER_SECONDS: Final = 60.0
"""How much of the events: the verdict, and the next start."""
_LEAST_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What the record holds of one end. `rows` in any order; `events` of all models, of this boot or others."""

    document: Document
    rows: Iterable[Mapping[str, Any]]
    events: Iterable[EventRow]
    meta: Mapping[str, str]
    seconds: float  # how much before the end is shown


def tell(material: Material) -> Story:
    """Tell the story of one end."""
    document = material.document
    events = _events(material)
    window = _window(material, events)
    read = (found for one in material.rows if (found := rows.row(one)) is not None)
    frames = _of_this_life(thin(read, document.monotonic_s, window), document)
    quiet, after = quiet_before_end(frames), first_after_end(frames)
    last = None if quiet is None else quiet.row
    happenings = lanes.happenings(
        (at, one.kind, one.text, dict(one.fields)) for at, one in events if window.start_s <= at
    )
    drawn = charts.all_charts(frames, _level(document, last))
    shown = (lanes.states(frames), *lanes.operations(frames))
    return Story(
        id=document.id,
        model=document.model,
        at=document.at,
        verdict=answer.verdict(document, last),
        facts=facts.facts(document, last, happenings),
        start_s=window.start_s,
        end_s=window.end_s,
        quiet_s=0.0 if quiet is None else quiet.at_s,
        charts=drawn,
        lanes=tuple(lane for lane in shown if lane is not None),
        happenings=happenings,
        levels=facts.levels(document, last, None if after is None else after.row),
        unseen=facts.unseen(last, drawn),
        known=facts.known(document),
        surroundings=facts.surroundings(document, last, material.meta),
    )


def _events(material: Material) -> list[tuple[float, EventRow]]:
    """Events of the model and of the sidecar itself, in the boot of this life, with their time from the end."""
    document = material.document
    placed = [
        (event.monotonic_s - document.monotonic_s, event)
        for event in material.events
        if event.model in {document.model, ""} and event.boot_id == document.life.boot_id
    ]
    return [(at, event) for at, event in placed if -material.seconds <= at <= EVENTS_AFTER_SECONDS]


def _window(material: Material, events: list[tuple[float, EventRow]]) -> Window:
    """From the start of this life, or as much as was asked for, to a moment after the end."""
    session = material.document.life.session
    started = (at for at, event in events if event.kind == "model_started" and event.fields.get("session") == session)
    starts = [at for at in started if at < 0]
    start = max([-material.seconds, *starts]) if material.document.main else -material.seconds
    start = min(start, -_LEAST_SECONDS)
    return Window(start, -_AFTER_RATIO * start)


def _of_this_life(frames: tuple[Frame, ...], document: Document) -> tuple[Frame, ...]:
    """Leave out other lives of the model: samples of another main process, or with another own group."""
    mine = [frame for frame in frames if not document.main or _main_is(frame.row, document.life.pid)]
    own = next((frame.row.levels[0].name for frame in reversed(mine) if frame.row.levels and frame.at_s < 0), None)
    return tuple(frame for frame in mine if own is None or not frame.row.levels or frame.row.levels[0].name == own)


def _main_is(row: Row, pid: int) -> bool:
    """Whether the main process is that one, as far as it is known."""
    mains = [process.pid for process in row.processes if process.main]
    return not mains or pid in mains


def _level(document: Document, last: Row | None) -> str | None:
    """The level to show in full: the one whose limit it was where it is seen, else the model's own."""
    if last is None or not last.levels:
        return None
    return document.level if document.level and last.level(document.level) else last.levels[0].name
