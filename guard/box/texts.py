"""The parts of a box that are written rarely and hold much text, as JSON: who it belongs to, and failures. Pure.

Every text is cut to a room of its own; what still does not fit gives up in a fixed order: outer stack frames, fields,
the end of the message. A reader checks every type and takes nothing on trust: another process may have written it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from guard.box import format as layout
from guard.model import Failure, LifeId

Scalar: TypeAlias = str | int | float

_NAME_ROOM: Final = 64
_MODEL_ROOM: Final = 400
_COMMAND_ROOM: Final = 1024
_MESSAGE_ROOM: Final = 1024
_FRAME_ROOM: Final = 200
_FRAMES: Final = 64
_FRAMES_KEPT: Final = 6
_CONTROLS: Final = {code: "\ufffd" for code in range(32) if chr(code) not in "\t\n\r"}
"""Each would take six bytes in JSON, and none is fit for a log."""
_FIELDS: Final = 24
_FIELD_ROOM: Final = 160


@dataclass(frozen=True, slots=True)
class BoxAbout:
    """What a box says about its process besides its life."""

    parent_session: str | None
    release: str
    command: str
    name: str | None = None  # of the model, as the link tells it


@dataclass(frozen=True, slots=True)
class About:
    """The decoded `about` cell."""

    life: LifeId
    about: BoxAbout
    created_wall_s: float


def encode_about(life: LifeId, about: BoxAbout, created_wall_s: float) -> bytes:
    """The payload of the `about` cell. A command that is too long loses its end."""
    room = _COMMAND_ROOM
    while True:
        payload = _dump(
            {
                "boot_id": _cut(life.boot_id, _NAME_ROOM),
                "pid": life.pid,
                "start_ticks": life.start_ticks,
                "session": life.session,
                "parent_session": None if about.parent_session is None else _cut(about.parent_session, _NAME_ROOM),
                "release": _cut(about.release, _NAME_ROOM),
                "created_wall_s": created_wall_s,
                "name": None if about.name is None else _cut(about.name, _MODEL_ROOM),
                "command": _cut(about.command, room),
            }
        )
        if len(payload) <= layout.ABOUT.payload_room:
            return payload
        room //= 2  # quotes and backslashes take two bytes each in JSON


def decode_about(payload: bytes) -> About | None:
    """The `about` cell, or None where it says anything but that."""
    found = _load(payload)
    try:
        life = LifeId(
            boot_id=_text(found["boot_id"]),
            pid=_whole(found["pid"]),
            start_ticks=_whole(found["start_ticks"]),
            session=_text(found["session"]),
        )
        parent, name = found["parent_session"], found.get("name")  # boxes of the first release have no name
        about = BoxAbout(
            parent_session=None if parent is None else _text(parent),
            release=_text(found["release"]),
            command=_text(found["command"]),
            name=None if name is None else _text(name),
        )
        return About(life, about, _number(found["created_wall_s"]))
    except (KeyError, TypeError, OverflowError):
        return None


def encode_failure(failure: Failure) -> bytes:
    """The payload of a failure cell, whatever the failure holds."""
    stack = [_cut(line, _FRAME_ROOM) for line in failure.stack[-_FRAMES:]]
    fields = {_cut(name, _NAME_ROOM): _scalar(value) for name, value in list(failure.fields.items())[:_FIELDS]}
    room = _MESSAGE_ROOM
    while True:
        left_out = len(failure.stack) - len(stack)
        payload = _dump(
            {
                "at_wall_s": failure.at_wall_s,
                "at_monotonic_s": failure.at_monotonic_s,
                "kind": _cut(failure.kind, _NAME_ROOM),
                "exception": _cut(failure.exception, 2 * _NAME_ROOM),
                "message": _cut(failure.message, room),
                "fatal": failure.fatal,
                "thread": _cut(failure.thread, _NAME_ROOM),
                "stack": [f"({left_out} outer frames left out)", *stack] if left_out else stack,
                "fields": fields,
            }
        )
        if len(payload) <= layout.FAILURES.payload_room:
            return payload
        if len(stack) > _FRAMES_KEPT:
            del stack[: (len(stack) - _FRAMES_KEPT) // 8 + 1]
        elif fields:
            fields.popitem()
        else:
            room //= 2


def decode_failure(payload: bytes) -> Failure | None:
    """A failure cell, or None where it says anything but that."""
    found = _load(payload)
    try:
        return Failure(
            at_wall_s=_number(found["at_wall_s"]),
            at_monotonic_s=_number(found["at_monotonic_s"]),
            kind=_text(found["kind"]),
            exception=_text(found["exception"]),
            message=_text(found["message"]),
            fatal=found["fatal"] is True,
            thread=_text(found["thread"]),
            stack=tuple(_text(line) for line in found["stack"]),
            fields=_fields(found["fields"]),
        )
    except (KeyError, TypeError, OverflowError):
        return None


def _dump(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()


def _load(payload: bytes) -> Mapping[str, Any]:
    """An object, empty where the payload is none. Payloads are at most a cell long, so this is bounded."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):  # ValueError covers bad UTF-8, bad JSON and over-long numbers
        return {}
    return found if isinstance(found, dict) else {}


def _cut(text: str, room: int) -> str:
    """A text that is valid UTF-8 without control characters and fits."""
    return layout.fit_head(str(text)[: room + 1].translate(_CONTROLS), room).decode()


def _scalar(value: object) -> Scalar:
    """A field's value as JSON can hold it: a number that is finite and fits 64 bits, or text."""
    if isinstance(value, int) and abs(value) < 1 << 64:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return _cut(str(value), _FIELD_ROOM)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise TypeError
    return float(value)


def _fields(value: object) -> Mapping[str, Scalar]:
    if not isinstance(value, dict):
        raise TypeError
    return MappingProxyType({name: item for name, item in value.items() if isinstance(item, str | int | float)})
