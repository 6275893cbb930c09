"""`/status`: everything latest as one JSON document."""

from __future__ import annotations

from guard.model import Known, Operation
from sidecar.board import Board, ModelView
from sidecar.detect.values import CannotTell, Finding
from sidecar.outputs import answers
from sidecar.outputs.room import room
from sidecar.outputs.shape import Json, encode, incident_document, iso, plain
from sidecar.sample import Instant, Sample


def render(board: Board, now: Instant) -> bytes:
    """Give the document in UTF-8."""
    return encode(document(board, now))


def document(board: Board, now: Instant) -> dict[str, Json]:
    """`{"at", "models": {NAME: ...}, "sidecar": ...}`; readings as in `sidecar.outputs.shape`."""
    return {
        "at": iso(now.wall_s),
        "monotonic_s": now.monotonic_s,
        "models": {name: _model(view) for name, view in board.models.items()},
        "sidecar": _own(board, now),
    }


def _own(board: Board, now: Instant) -> dict[str, Json]:
    own = board.own
    return {
        "started": iso(own.started.wall_s),
        "last_tick": iso(own.last_tick.wall_s) if own.last_tick else None,
        "tick_age_seconds": answers.tick_age_seconds(own, now),
        "tick_deadline_seconds": answers.tick_deadline_seconds(own),
        "tick_seconds": own.tick_seconds,
        "ticks": own.ticks,
        "degraded": list(own.degraded),
        "rss_bytes": plain(own.rss_bytes),
        "cpu_seconds": plain(own.cpu_seconds),
        "last_event_id": board.events[-1].id if board.events else None,
    }


def _model(view: ModelView) -> dict[str, Json]:
    return {
        "judgement": plain(view.judgement),
        "findings": [plain(one) for one in view.answers if isinstance(one, Finding)],
        "cannot_tell": [plain(one) for one in view.answers if isinstance(one, CannotTell)],
        "time_to_limit_seconds": plain(view.time_to_limit_seconds),
        "operations": [plain(one) for one in operations(view)],
        "ends": plain(view.ends),
        "supervised": plain(view.supervised),
        "last_incident": incident_document(view.incidents[0]) if view.incidents else None,
        "room": [plain(room(view.sample, level)) for level in view.sample.levels] if view.sample else [],
        "sample": plain(view.sample),
    }


def operations(view: ModelView) -> tuple[Operation, ...]:
    """The work in flight of the model, none where there is no sample."""
    return in_flight(view.sample) if view.sample else ()


def in_flight(sample: Sample) -> tuple[Operation, ...]:
    """The work in flight in every living process, as the black boxes say."""
    boxes = [one.box.value for one in sample.processes if one.alive and isinstance(one.box, Known)]
    return tuple(work for box in boxes for work in box.operations if not work.done)
