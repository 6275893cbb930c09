"""From an exception to a `Failure`, and to the two texts that leave the process before it ends.

Pure: no clock, no IO. Nothing here keeps the exception or its traceback; a stack is at most 16 lines of text.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from guard.advice import advice
from guard.model import Failure
from guard.recognise import recognise, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType, FrameType, TracebackType

STACK_FRAMES: Final = 16
LINE_LIMIT_BYTES: Final = 4096  # PIPE_BUF: one write of this size is not interleaved with other writers (pipe(7))
_MESSAGE_LIMIT: Final = 1000
_MESSAGE_KEPT: Final = 300
_FRAME_LIMIT: Final = 200
_FRAMES_KEPT: Final = 6
_NAME_LIMIT: Final = 128
_FIELD_LIMIT: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """Where and when an exception was seen. `kind` is used when the exception itself is not about memory."""

    kind: str
    fatal: bool
    at_wall_s: float
    at_monotonic_s: float
    thread: str = ""


def memory_kind(exc: BaseException) -> str | None:
    """Name the memory failure that an exception, or one of its causes, stands for; None for any other exception."""
    found = recognise(exc)
    return None if found is None else found.kind


def stack_of(tb: TracebackType | None) -> tuple[str, ...]:
    """Give the last `STACK_FRAMES` frames of a traceback as "file:line function", innermost last."""
    frames: deque[str] = deque(maxlen=STACK_FRAMES)
    while tb is not None:
        frames.append(_frame(tb.tb_frame.f_code, tb.tb_lineno))
        tb = tb.tb_next
    return tuple(frames)


def stack_above(frame: FrameType | None) -> tuple[str, ...]:
    """Give a frame and its callers in the same form. A thread that runs no Python has none."""
    frames: list[str] = []
    while frame is not None and len(frames) < STACK_FRAMES:
        frames.append(_frame(frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(frames))


def _frame(code: CodeType, line: int) -> str:
    return f"{code.co_filename}:{line} {code.co_name}"[-_FRAME_LIMIT:]


def failure_of(exc: BaseException, caught: Caught) -> Failure:
    """Describe one exception: kind, type, message and stack as text; for a memory failure its figures."""
    kind = type(exc)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    memory = recognise(exc)
    return Failure(
        at_wall_s=caught.at_wall_s,
        at_monotonic_s=caught.at_monotonic_s,
        kind=caught.kind if memory is None else memory.kind,
        exception=name,
        message=text_of(exc)[:_MESSAGE_LIMIT],
        fatal=caught.fatal,
        thread=caught.thread,
        stack=stack_of(exc.__traceback__),
        fields=MappingProxyType({} if memory is None else dict(memory.fields)),
    )


def json_line(failure: Failure, about: Mapping[str, object]) -> bytes:
    """Give one line of JSON, newline included, that fits `LINE_LIMIT_BYTES`.

    Outer frames go first, then the end of the message, then the inner frames, then fields. `about` is at most 1 KiB of
    text; then names, at six bytes a character, leave room for an empty message.
    """
    stack, message = list(failure.stack), failure.message
    fields = {
        name: value if isinstance(value, (int, float)) else value[:_FIELD_LIMIT]
        for name, value in failure.fields.items()
    }
    while True:
        record = {
            "event": "oomguard.failure",
            "at_wall_s": round(failure.at_wall_s, 3),
            "kind": failure.kind,
            "exception": failure.exception[:_NAME_LIMIT],
            "message": message,
            "fatal": failure.fatal,
            "thread": failure.thread[:_NAME_LIMIT],
            **about,
            **fields,
            **_do(failure),
            "stack": stack,
        }
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=str) + "\n"
        line = text.encode("utf-8", "replace")
        if len(line) <= LINE_LIMIT_BYTES:
            return line
        if len(stack) > _FRAMES_KEPT or (stack and len(message) <= _MESSAGE_KEPT):
            del stack[0]
        elif not message and fields:
            fields.popitem()
        else:
            message = message[: len(message) // 2]


def _do(failure: Failure) -> dict[str, str]:
    said = advice(failure.kind, failure.fields)
    return {"do": said} if said else {}


def termination_text(failure: Failure, line: bytes) -> bytes:
    """Give the text for the termination log: a sentence or two for people, then the JSON line if it still fits."""
    human = f"oomguard: {failure.kind}: {failure.exception}: {failure.message}".replace("\n", " ")
    first = human.encode("utf-8", "replace")[:1000] + b"\n"
    for said in _do(failure).values():
        first += f"what to do: {said}\n".encode()
    return first + line if len(first) + len(line) <= LINE_LIMIT_BYTES else first
