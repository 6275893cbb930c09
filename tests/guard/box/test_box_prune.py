"""Old boxes make room, living ones never do."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from guard.box.prune import KEPT
from tests.guard.box.boxes import make, state_of
from tests.lab.kit.wait import until


def _names(directory: Path) -> set[str]:
    return {path.stem for path in directory.glob("*.box")}


def _age(directory: Path, session: str, seconds: int) -> None:
    path = directory / f"{session}.box"
    os.utime(path, (time.time() - seconds,) * 2)


def test_the_oldest_boxes_of_ended_processes_go(tmp_path: Path) -> None:
    """Beyond the number kept the oldest closed boxes are removed; an open one stays however old it is."""
    alive = make(tmp_path, "alive")
    _age(tmp_path, "alive", 10_000)
    for number in range(KEPT + 5):
        make(tmp_path, f"ended-{number}").close()
        _age(tmp_path, f"ended-{number}", 9000 - number)
    make(tmp_path, "new").close()
    left = _names(tmp_path)
    assert {"alive", "new", f"ended-{KEPT + 4}"} <= left
    assert not left & {f"ended-{number}" for number in range(5)}
    assert KEPT <= len(left) <= KEPT + 1
    alive.beat("still there")
    assert state_of((tmp_path / "alive.box").read_bytes()).beats


def test_a_killed_writer_has_ended_though_it_never_said_so(tmp_path: Path) -> None:
    """SIGKILL frees the lock of its box, and until then the box stays."""
    child = os.fork()
    if child == 0:
        try:
            _box = make(tmp_path, "killed")
            signal.pause()
        finally:
            os._exit(1)
    try:
        until(lambda: "killed" in _names(tmp_path), 30, "the box")
        _age(tmp_path, "killed", 10_000)
        for number in range(KEPT + 1):
            make(tmp_path, f"one-{number}").close()
        assert "killed" in _names(tmp_path), "its process lives"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    make(tmp_path, "after").close()
    assert "killed" not in _names(tmp_path)


def test_what_a_kill_left_half_made_goes_once_it_is_old(tmp_path: Path) -> None:
    """A young temporary name may be in the making; an old one is removed."""
    for name, age in ((".old.new", 3600), (".young.new", 0)):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    make(tmp_path, "any").close()
    assert {".young.new", "any.box"} == {path.name for path in tmp_path.iterdir()}


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """What is no box is not touched, and a FIFO of a box's name does not block."""
    (tmp_path / "notes.txt").write_text("precious")
    os.mkfifo(tmp_path / "a-fifo.box")
    for number in range(KEPT + 3):
        make(tmp_path, f"s{number}").close()
    assert (tmp_path / "notes.txt").exists()
