"""From exceptions to failures and texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from guard.failure import LINE_LIMIT_BYTES, STACK_FRAMES, Caught, failure_of, json_line, memory_kind, termination_text
from guard.model import Failure

CAUGHT = Caught(kind="exception", fatal=True, at_wall_s=1.0, at_monotonic_s=2.0, thread="MainThread")


class OutOfMemoryError(RuntimeError):
    """Named as torch names its own."""

    __module__ = "torch.cuda"


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (MemoryError(), "memory_error"),
        (OutOfMemoryError("anything"), "cuda_out_of_memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 52.00 MiB. GPU 0 has a total"), "cuda_out_of_memory"),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might"), "cuda_out_of_memory"),
        (RuntimeError("HIP out of memory. Tried to allocate 2 GiB"), "cuda_out_of_memory"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried"),
            "cpu_allocator",
        ),
        (RuntimeError("unable to mmap 1024 bytes from file <f>: Cannot allocate memory (12)"), "mmap"),
        (RuntimeError("unable to allocate shared memory(shm) for file </torch_1>"), "shared_memory"),
        (OSError(12, "Cannot allocate memory"), "memory_error"),
        (RuntimeError("shape mismatch"), None),
        (ValueError("CUDA out of memory"), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_memory_kind(exc: BaseException, kind: str | None) -> None:
    """Memory failures are known by type or, where torch raises plain errors, by text."""
    assert kind == memory_kind(exc)


def test_memory_kind_of_a_cause() -> None:
    """An error that was raised from a memory failure counts as one; a context that was suppressed does not."""
    wrapped = RuntimeError("engine died")
    wrapped.__cause__ = MemoryError()
    assert memory_kind(wrapped) == "memory_error"
    hidden = RuntimeError("engine died")
    hidden.__context__ = MemoryError()
    assert memory_kind(hidden) == "memory_error"
    hidden.__suppress_context__ = True
    assert memory_kind(hidden) is None


def test_memory_kind_ends_on_a_cycle() -> None:
    """Exceptions that cause each other do not keep us."""
    one, two = ValueError(), ValueError()
    one.__context__, two.__context__ = two, one
    assert memory_kind(one) is None


def _deep(depth: int) -> None:
    if depth == 0:
        raise ValueError("deep")
    _deep(depth - 1)


def test_stack_is_the_innermost_frames() -> None:
    """At most sixteen frames are kept, the innermost last."""
    with pytest.raises(ValueError, match="deep") as caught:
        _deep(40)
    stack = failure_of(caught.value, CAUGHT).stack
    assert len(stack) == STACK_FRAMES
    assert all(frame.endswith(" _deep") for frame in stack)


texts = st.text(max_size=3000)


@example(message="\0" * 3000, exception="\0" * 3000, thread="\ud800" * 3000, stack=["\0" * 3000] * 16)
@given(message=texts, exception=texts, thread=texts, stack=st.lists(texts, max_size=16))
def test_line_fits_and_is_json(message: str, exception: str, thread: str, stack: list[str]) -> None:
    """Whatever an exception says, the line is whole JSON within one atomic write, and so is the termination text."""
    failure = Failure(
        at_wall_s=1.0,
        at_monotonic_s=1.0,
        kind="exception",
        exception=exception,
        message=message,
        fatal=True,
        thread=thread,
        stack=tuple(stack),
    )
    line = json_line(failure, {"pid": 1, "command": "x"})
    assert len(line) <= LINE_LIMIT_BYTES
    assert line.count(b"\n") == 1
    assert json.loads(line)["event"] == "oomguard.failure"
    text = termination_text(failure, line)
    assert len(text) <= LINE_LIMIT_BYTES
    assert text.startswith(b"oomguard: exception: ")
