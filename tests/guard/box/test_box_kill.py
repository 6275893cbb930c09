"""A writer that is really killed, at random moments, always leaves a box that tells the truth."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from pathlib import Path

from guard.model import OperationKind
from tests.guard.box.boxes import failure, make, state_of
from tests.lab.kit.wait import until

_KILLS = 60
_EVERY = 50


def _write_for_ever(directory: Path, session: str) -> None:
    """Records whose parts must agree with each other, as fast as they go."""
    box = make(directory, session)
    for number in itertools.count():
        slot = box.begin(OperationKind.LOAD, f"load {number}", file=f"/models/{number}", bytes_expected=number * 1000)
        for step in range(_EVERY):
            slot.progress(f"tensor {number}.{step}" + "x" * (step % 40), number * 1000 + step)
            box.beat("steps")
        if number % 7 == 0:
            box.fail(failure(number, message=f"failure {number} " + "y" * (number % 900)))
        slot.finish()


def _steps_of(raw: bytes, *, alive: bool) -> int:
    """Check that every record is one that was written, and give how far the writer had come.

    Of a living writer each record is whole, but the copy takes them from different moments.
    """
    state = state_of(raw)
    for operation in state.operations:
        number = int(operation.label.split()[1])
        assert (f"/models/{number}", number * 1000) == (operation.file, operation.bytes_expected)
        if operation.item is not None:
            step = int(operation.item.rstrip("x").split(".")[1])
            assert operation.bytes_done == number * 1000 + step
            assert operation.item == f"tensor {number}.{step}" + "x" * (step % 40)
    for item in state.failures:
        number = int(item.message.split()[1])
        assert item == failure(number, message=f"failure {number} " + "y" * (number % 900))
    numbers = [int(operation.label.split()[1]) for operation in state.operations]
    assert numbers == sorted(numbers), "operations come in the order they began"
    assert alive or sum(not operation.done for operation in state.operations) <= 1
    steps = state.beats[0].count if state.beats else 0
    latest = state.operations[-1] if state.operations else None
    if not alive and latest is not None and latest.bytes_done is not None:
        begun = latest.bytes_done // 1000 * _EVERY + latest.bytes_done % 1000
        assert steps in {begun, begun + 1}
    return steps


def test_a_box_is_whole_after_every_sigkill(tmp_path: Path) -> None:
    """Sixty writers die at random moments; each box says what was in flight, and never less than before the kill."""
    chance = random.Random(4711)
    for number in range(_KILLS):
        session = f"killed-{number}"
        child = os.fork()
        if child == 0:
            try:
                _write_for_ever(tmp_path, session)
            finally:
                os._exit(1)
        path = tmp_path / f"{session}.box"
        try:
            until(path.exists, 30, "the box to get its name", pause_seconds=0.001)
            time.sleep(chance.uniform(0, 0.02))  # the moment of the kill is what varies here
            before = _steps_of(path.read_bytes(), alive=True)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert _steps_of(path.read_bytes(), alive=False) >= before


def test_a_writer_killed_while_it_makes_its_box_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    """What has the name of a box is a box; what a kill left half made has another name."""
    chance = random.Random(7)
    child = os.fork()
    if child == 0:
        try:
            for number in itertools.count():
                make(tmp_path, f"made-{number}").close()
        finally:
            os._exit(1)
    until(lambda: any(tmp_path.glob("*.box")), 30, "the first box", pause_seconds=0.001)
    time.sleep(chance.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for path in tmp_path.glob("*.box"):
        assert path.stem == state_of(path.read_bytes()).life.session
