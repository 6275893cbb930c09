"""What the tests of the black box share."""

from __future__ import annotations

import os
from pathlib import Path

from guard.box.reader import parse_box
from guard.box.writer import BoxAbout, BoxWriter
from guard.model import BoxState, Failure, Known, LifeId

ABOUT = BoxAbout(parent_session="parent", release="1.2.3", command="python serve.py --port 8000", name="server")


def life(session: str = "session-1") -> LifeId:
    """One life of this process."""
    return LifeId("boot", os.getpid(), 4711, session)


def make(directory: Path, session: str = "session-1") -> BoxWriter:
    """A box in a directory."""
    return BoxWriter.create(str(directory), life(session), ABOUT)


def state_of(data: bytes) -> BoxState:
    """The state of bytes that must hold one."""
    reading = parse_box(data, "box")
    assert isinstance(reading, Known), reading
    return reading.value


def read(box: BoxWriter) -> BoxState:
    """What a reader sees of a box now."""
    return state_of(Path(box.path).read_bytes())


def failure(number: int, *, fatal: bool = False, message: str = "CUDA out of memory") -> Failure:
    """A failure that differs from every other by its number."""
    return Failure(
        at_wall_s=1000.0 + number,
        at_monotonic_s=float(number),
        kind="exception",
        exception="torch.OutOfMemoryError",
        message=message,
        fatal=fatal,
        thread="MainThread",
        stack=("serve.py:10 main", f"model.py:{number} load"),
        fields={"requested_bytes": number, "device": "cuda:0", "ratio": 0.5},
    )
