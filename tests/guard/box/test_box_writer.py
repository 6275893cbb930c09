"""The writer: what it is told is what a reader finds, and the host never pays more than memory stores."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from guard.box import format as layout
from guard.box import texts
from guard.box.reader import parse_box
from guard.box.writer import BoxAbout, BoxError, BoxWriter
from guard.model import Known, OperationKind, Unknown
from tests.guard.box.boxes import ABOUT, failure, life, make, read, state_of


def test_a_new_box_says_whose_it_is_and_nothing_else(tmp_path: Path) -> None:
    """A fresh box holds the life and the command, and no operation, beat, failure or mark."""
    state = read(make(tmp_path / "boxes"))
    assert life() == state.life
    assert (ABOUT.parent_session, ABOUT.release, ABOUT.command) == (state.parent_session, state.release, state.command)
    assert state.created_wall_s == pytest.approx(time.time(), abs=60)
    assert (state.operations, state.beats, state.failures) == ((), (), ())
    assert (state.sigterm_wall_s, state.exit_mark) == (None, None)


def test_an_operation_shows_its_progress_and_its_end(tmp_path: Path) -> None:
    """Item and bytes are the last ones given; None keeps the earlier value; finishing marks it done and keeps it."""
    box = make(tmp_path)
    slot = box.begin(OperationKind.LOAD, "load_file", file="/m/a.safetensors", bytes_expected=100, at_most_seconds=2.5)
    (begun,) = read(box).operations
    assert (None, None, False, threading.current_thread().name) == (
        begun.item,
        begun.bytes_done,
        begun.done,
        begun.thread,
    )
    slot.progress("layer.0", 10)
    slot.progress(bytes_done=20)
    (moved,) = read(box).operations
    assert (moved.item, moved.bytes_done, moved.bytes_expected, moved.at_most_seconds) == ("layer.0", 20, 100, 2.5)
    assert begun.started_monotonic_s == moved.started_monotonic_s <= moved.updated_monotonic_s
    slot.finish()
    slot.progress("too late", 99)
    (done,) = read(box).operations
    assert (done.done, done.item, done.bytes_done) == (True, "layer.0", 20)


def test_zero_bytes_are_not_unknown_bytes(tmp_path: Path) -> None:
    """Zero and None stay apart in every count."""
    box = make(tmp_path)
    box.begin(OperationKind.MOVE, "zero", bytes_expected=0).progress(bytes_done=0)
    box.begin(OperationKind.MOVE, "none")
    zero, none = read(box).operations
    assert (zero.bytes_done, zero.bytes_expected) == (0, 0)
    assert (
        none.bytes_done,
        none.bytes_expected,
        none.file,
        none.item,
        none.at_most_seconds,
    ) == (None, None, None, None, None)


def test_nested_operations_have_slots_of_their_own_in_the_order_they_began(tmp_path: Path) -> None:
    """An inner operation neither hides nor ends the outer one, and slots are reused oldest first."""
    box = make(tmp_path)
    outer = box.begin(OperationKind.BUSY, "warm-up")
    for number in range(layout.OPERATIONS.count + 5):
        box.begin(OperationKind.LOAD, f"shard {number}").finish()
    found = read(box).operations
    assert layout.OPERATIONS.count == len(found)
    assert (found[0].label, found[0].done) == ("warm-up", False)
    assert f"shard {layout.OPERATIONS.count + 4}" == found[-1].label
    outer.finish()


def test_with_every_slot_taken_an_operation_goes_unrecorded(tmp_path: Path) -> None:
    """The box never grows and never takes a running operation's slot."""
    box = make(tmp_path)
    slots = [box.begin(OperationKind.BUSY, f"job {number}") for number in range(layout.OPERATIONS.count)]
    lost = box.begin(OperationKind.BUSY, "one too many")
    lost.progress("x", 1)
    lost.finish()
    assert [f"job {number}" for number in range(layout.OPERATIONS.count)] == [
        operation.label for operation in read(box).operations
    ]
    assert Path(box.path).stat().st_size == layout.SIZE
    slots[0].finish()
    box.begin(OperationKind.BUSY, "again")
    assert read(box).operations[-1].label == "again"


def test_texts_are_cut_to_fit_and_stay_readable(tmp_path: Path) -> None:
    """Of a file and an item the end is kept, of a label the beginning; no character is torn, odd names do not raise."""
    box = make(tmp_path)
    slot = box.begin(OperationKind.LOAD, "ä" * 200, file="/models/" + "é" * 300 + "/last.bin")
    slot.progress("x" * 200 + ".weight")
    box.begin(OperationKind.LOAD, "odd", file=os.fsdecode(b"/m/\xff\xfe"))
    long, odd = read(box).operations
    assert long.label.startswith("ää")
    assert long.label.endswith("…")
    assert long.file is not None
    assert long.file.startswith("…é")
    assert long.file.endswith("/last.bin")
    assert long.item is not None
    assert long.item.endswith(".weight")
    assert odd.file == r"/m/\udcff\udcfe"


@pytest.mark.parametrize("value", [-5, 2**63, 2**80])
def test_counts_out_of_range_are_clamped(tmp_path: Path, value: int) -> None:
    """A host that counts wrong does not get an exception."""
    box = make(tmp_path)
    box.begin(OperationKind.LOAD, "x", bytes_expected=value, at_most_seconds=float("inf")).progress(bytes_done=value)
    (found,) = read(box).operations
    assert found.bytes_done == found.bytes_expected == min(max(value, 0), 2**63 - 1)
    assert found.at_most_seconds is None


def test_beats_of_many_threads_are_all_counted(tmp_path: Path) -> None:
    """No increment is lost between threads."""
    box = make(tmp_path)

    def beat_often() -> None:
        for _ in range(3000):
            box.beat("tokens")

    threads = [threading.Thread(target=beat_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    box.beat("requests", 7)
    assert {beat.name: beat.count for beat in read(box).beats} == {"tokens": 12000, "requests": 7}


def test_only_the_first_names_of_beats_are_kept(tmp_path: Path) -> None:
    """A host that makes a name a request cannot fill the box."""
    box = make(tmp_path)
    for number in range(layout.BEATS.count + 10):
        box.beat(f"name {number}")
    assert [f"name {number}" for number in range(layout.BEATS.count)] == [beat.name for beat in read(box).beats]


def test_a_signal_handler_may_write_to_the_cell_being_written(tmp_path: Path) -> None:
    """A handler that beats in the middle of a beat neither deadlocks nor tears the record."""
    box = make(tmp_path)
    hits = 0

    def handler(_number: int, _frame: object) -> None:
        nonlocal hits
        hits += 1
        box.beat("loop")
        box.sigterm()

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        beats = 0
        while hits < 200:
            box.beat("loop")
            beats += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    (found,) = read(box).beats
    assert beats <= found.count <= beats + hits


def test_the_newest_fatal_failure_is_never_pushed_out(tmp_path: Path) -> None:
    """Survived failures replace each other; the fatal one stays until a later fatal one."""
    box = make(tmp_path)
    for number in (1, 2):
        box.fail(failure(number, fatal=True))
    for number in range(3, 30):
        box.fail(failure(number))
    found = read(box).failures
    assert [item.fields["requested_bytes"] for item in found] == [2, 27, 28, 29]
    assert failure(2, fatal=True) == found[0]
    box.fail(failure(40, fatal=True))
    assert {28, 29, 40} < {item.fields["requested_bytes"] for item in read(box).failures}


@pytest.mark.parametrize(
    "message",
    ["x" * 10_000, "\x00" * 10_000, "漢" * 10_000, "\udcff" * 5000, '"' * 10_000],
    ids=["long", "nul", "wide", "torn", "quotes"],
)
def test_a_huge_failure_keeps_its_innermost_frames(tmp_path: Path, message: str) -> None:
    """Whatever it holds, a failure fits its cell: outer frames and the end of the message go first."""
    box = make(tmp_path)
    big = failure(1, message=message)
    stack = tuple(f"/site-packages/torch/nn/modules/{message[:20]}.py:{number} forward" for number in range(500))
    box.fail(replace(big, stack=stack, fields={"note": message, "n": 2**70, "inf": float("inf")}))
    (found,) = read(box).failures
    assert found.message
    assert found.exception == big.exception
    assert "outer frames left out" in found.stack[0]
    assert len(found.stack) > 6
    assert found.stack[-1].endswith(":499 forward")


def test_marks_of_the_end(tmp_path: Path) -> None:
    """The first SIGTERM and the last exit status count; an unknown status stays unknown."""
    box = make(tmp_path)
    box.sigterm()
    first = read(box).sigterm_wall_s
    box.sigterm()
    box.exit(None)
    unknown = read(box).exit_mark
    box.exit(3)
    state = read(box)
    assert first is not None
    assert first == state.sigterm_wall_s
    assert unknown is not None
    assert unknown.status is None
    assert state.exit_mark is not None
    assert state.exit_mark.status == 3


def test_a_closed_box_is_silent_and_its_file_stays(tmp_path: Path) -> None:
    """After close every call does nothing, closing twice is fine, and the file tells the last state."""
    box = make(tmp_path)
    slot = box.begin(OperationKind.LOAD, "x")
    box.close()
    box.close()
    slot.progress("y", 1)
    slot.finish()
    box.beat("b")
    box.fail(failure(1))
    box.sigterm()
    box.exit(0)
    box.begin(OperationKind.BUSY, "later").finish()
    state = read(box)
    assert box.fd == -1
    assert [(operation.label, operation.item) for operation in state.operations] == [("x", None)]
    assert (state.beats, state.failures, state.sigterm_wall_s, state.exit_mark) == ((), (), None, None)
    box.remove()
    assert not Path(box.path).exists()


def test_the_descriptor_for_the_sidecar_is_read_only_and_the_file_readable_by_all(tmp_path: Path) -> None:
    """Mode 0644 whatever the umask, the directory like /tmp, and nobody can write through the descriptor."""
    before = os.umask(0o077)
    try:
        box = make(tmp_path / "boxes")
    finally:
        os.umask(before)
    assert fcntl.fcntl(box.fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    assert stat.S_IMODE(os.fstat(box.fd).st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "boxes").stat().st_mode) == 0o1777
    assert Path(box.path).read_bytes() == os.pread(box.fd, 1 << 20, 0)
    assert [entry.name for entry in (tmp_path / "boxes").iterdir()] == ["session-1.box"]


def test_a_forked_child_leaves_the_parents_box_alone(tmp_path: Path) -> None:
    """After `abandon` in the child nothing it does reaches the parent's file, even with the lock held at the fork."""
    box = make(tmp_path)
    slot = box.begin(OperationKind.LOAD, "parent")
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with box.lock:
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    before = Path(box.path).read_bytes()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(10)
            box.abandon()
            slot.progress("child", 1)
            slot.finish()
            box.beat("child")
            renewed = make(tmp_path, "session-2")
            renewed.beat("child", 5)
            os._exit(7)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 7
    assert before == Path(box.path).read_bytes()
    of_child = state_of((tmp_path / "session-2.box").read_bytes())
    assert [(beat.name, beat.count) for beat in of_child.beats] == [("child", 5)]


@pytest.mark.parametrize("session", ["", "../x", "a/b", "x" * 65, "ä"])
def test_a_session_that_is_no_file_name_is_refused(tmp_path: Path, session: str) -> None:
    """A session cannot lead out of the directory."""
    with pytest.raises(BoxError, match="session"):
        make(tmp_path, session)


def test_a_box_is_never_made_twice(tmp_path: Path) -> None:
    """A second box of one session is refused and the first one is left as it is."""
    box = make(tmp_path)
    box.beat("kept")
    with pytest.raises(BoxError, match="session"):
        make(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["session-1.box"]
    assert read(box).beats[0].name == "kept"


def test_a_missing_volume_is_said_with_what_to_do(tmp_path: Path) -> None:
    """Only the last directory is made; a missing volume is not papered over."""
    with pytest.raises(BoxError, match="OOMGUARD_DIR"):
        make(tmp_path / "missing" / "boxes")
    (tmp_path / "file").write_text("")
    with pytest.raises(BoxError, match="not a directory"):
        make(tmp_path / "file")


def test_a_long_command_is_cut(tmp_path: Path) -> None:
    """A command of any length and content leaves a readable box."""
    box = BoxWriter.create(str(tmp_path), life(), BoxAbout(None, "1", "python " + "\x01" * 100_000))
    assert read(box).command.startswith("python")


def test_a_model_without_a_name_is_told_as_such(tmp_path: Path) -> None:
    """The name is what the link tells too; a box that has none, as the first release wrote it, is still whole."""
    named = make(tmp_path, "named")
    unnamed = BoxWriter.create(str(tmp_path), life("unnamed"), BoxAbout(None, "1", "python serve.py"))
    assert read(named).name == "server"
    assert read(unnamed).name is None
    first_release = json.loads(texts.encode_about(life(), BoxAbout(None, "0.1", "serve"), 5.0))
    del first_release["name"]
    decoded = texts.decode_about(json.dumps(first_release).encode())
    assert decoded is not None
    assert decoded.about == BoxAbout(None, "0.1", "serve")


def test_marking_stays_cheap(tmp_path: Path) -> None:
    """Progress and beat cost microseconds; the bound is ten times what was measured, for busy machines."""
    box = make(tmp_path)
    slot = box.begin(OperationKind.LOAD, "x", file="/models/model-00001-of-00002.safetensors")

    def best(repeat: int) -> float:
        start = time.perf_counter()
        for number in range(repeat):
            slot.progress("model.layers.11.mlp.gate_proj.weight", number)
            box.beat("tokens")
        return (time.perf_counter() - start) / repeat

    assert min(best(500) for _ in range(10)) < 30e-6


def test_another_major_version_is_not_read(tmp_path: Path) -> None:
    """A box of another layout is unsupported, not damaged; a newer minor version is read."""
    raw = bytearray(Path(make(tmp_path).path).read_bytes())
    raw[: layout.PRELUDE.size] = layout.PRELUDE.pack(layout.MAGIC, layout.MAJOR, 9, layout.SIZE)
    assert isinstance(parse_box(bytes(raw), "box"), Known)
    raw[: layout.PRELUDE.size] = layout.PRELUDE.pack(layout.MAGIC, layout.MAJOR + 1, 0, layout.SIZE)
    reading = parse_box(bytes(raw), "box")
    assert isinstance(reading, Unknown)
    assert reading.why == "unsupported"
