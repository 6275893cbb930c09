"""From an exception to a `Failure`, and to the two texts that leave the process before it ends.

Pure: no clock, no IO. Nothing here keeps the exception or its traceback; a stack is at most 16 lines of text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.model import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

STACK_FRAMES: Final = 16
LINE_LIMIT_BYTES: Final = 4096  # PIPE_BUF: one write of this size is not interleaved with other writers (pipe(7))
_MESSAGE_LIMIT: Final = 1000
_FRAME_LIMIT: Final = 200
_NAME_LIMIT: Final = 128
_CAUSES: Final = 4

_TEXTS: Final = (
    # Texts that torch raises as RuntimeError or OSError. First match wins; kind on the right.
    ("cuda out of memory", "cuda_out_of_memory"),
    ("cuda ran out of memory", "cuda_out_of_memory"),
    ("cuda error: out of memory", "cuda_out_of_memory"),
    ("hip out of memory", "cuda_out_of_memory"),
    ("defaultcpuallocator: can't allocate memory", "cpu_allocator"),
    ("c10 out of memory", "cpu_allocator"),
    ("unable to allocate shared memory", "shared_memory"),
    ("unable to mmap", "mmap"),
    ("cannot allocate memory", "memory_error"),
)


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
    current: BaseException | None = exc
    for _ in range(_CAUSES):
        if current is None:
            return None
        kind = _kind_of_one(current)
        if kind is not None:
            return kind
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return None


def _kind_of_one(exc: BaseException) -> str | None:
    names = [f"{base.__module__}.{base.__qualname__}" for base in type(exc).__mro__]
    if any(name.startswith("torch.") and name.endswith("OutOfMemoryError") for name in names):
        return "cuda_out_of_memory"
    if isinstance(exc, MemoryError):
        return "memory_error"
    if not isinstance(exc, (RuntimeError, OSError)):
        return None
    text = _message(exc).lower()
    return next((kind for part, kind in _TEXTS if part in text), None)


def _message(exc: BaseException) -> str:
    try:
        return str(exc)[:_MESSAGE_LIMIT]
    except Exception as broken:  # noqa: BLE001 - __str__ of a foreign exception may raise anything
        return f"(no text: __str__ raised {type(broken).__name__})"


def stack_of(tb: TracebackType | None) -> tuple[str, ...]:
    """Give the last `STACK_FRAMES` frames of a traceback as "file:line function", innermost last."""
    frames: list[str] = []
    while tb is not None:
        code = tb.tb_frame.f_code
        frames.append(f"{code.co_filename}:{tb.tb_lineno} {code.co_name}"[-_FRAME_LIMIT:])
        if len(frames) > STACK_FRAMES:
            del frames[0]
        tb = tb.tb_next
    return tuple(frames)


def failure_of(exc: BaseException, caught: Caught) -> Failure:
    """Describe one exception: kind, type, message and stack as text."""
    kind = type(exc)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return Failure(
        at_wall_s=caught.at_wall_s,
        at_monotonic_s=caught.at_monotonic_s,
        kind=memory_kind(exc) or caught.kind,
        exception=name,
        message=_message(exc),
        fatal=caught.fatal,
        thread=caught.thread,
        stack=stack_of(exc.__traceback__),
    )


def json_line(failure: Failure, about: Mapping[str, object]) -> bytes:
    """Give one line of JSON, newline included, that fits `LINE_LIMIT_BYTES`; frames go first, then message text.

    `about` is at most 1 KiB of text; then names, at six bytes a character, leave room for an empty message.
    """
    stack, message = list(failure.stack), failure.message
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
            **failure.fields,
            "stack": stack,
        }
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=str) + "\n"
        line = text.encode("utf-8", "replace")
        if len(line) <= LINE_LIMIT_BYTES:
            return line
        if stack:
            del stack[0]
        else:
            message = message[: len(message) // 2]


def termination_text(failure: Failure, line: bytes) -> bytes:
    """Give the text for the termination log: a sentence for people, then the JSON line if it still fits."""
    human = f"oomguard: {failure.kind}: {failure.exception}: {failure.message}".replace("\n", " ")
    first = human.encode("utf-8", "replace")[:1000] + b"\n"
    return first + line if len(first) + len(line) <= LINE_LIMIT_BYTES else first
