"""Damage is absence: whatever happens to the bytes, a reader returns only what was once written."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.box import format as layout
from guard.box.reader import parse_box
from guard.box.texts import decode_about, decode_failure
from guard.model import BoxState, Known, OperationKind, Unknown
from tests.guard.box.boxes import failure, make, state_of


@dataclass(frozen=True)
class History:
    """A box after every step of its life, and all that was ever written to it."""

    snapshots: tuple[bytes, ...]
    parts: frozenset[str]


def _parts(state: BoxState) -> set[str]:
    owner = (state.life, state.parent_session, state.release, state.created_wall_s, state.command)
    marks = [(name, value) for name in ("sigterm_wall_s", "exit_mark") if (value := getattr(state, name)) is not None]
    return {repr(part) for part in (owner, *state.operations, *state.beats, *state.failures, *marks)}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Some sixty steps that use every kind of cell more than once."""
    box = make(tmp_path_factory.mktemp("boxes"))
    snapshots = [Path(box.path).read_bytes()]
    slots = []

    def keep() -> None:
        snapshots.append(Path(box.path).read_bytes())

    for number in range(12):
        slots.append(box.begin(OperationKind.LOAD, f"load {number}", file=f"/m/{number}", bytes_expected=number))
        keep()
        slots[number // 2].progress(f"tensor {number}", number * 10)
        keep()
        box.beat(f"beat {number % 3}", number)
        keep()
        box.fail(failure(number, fatal=number == 4))
        keep()
        if number % 3 == 0:
            slots[number].finish()
            keep()
    box.sigterm()
    keep()
    for status in (None, 1, 0):
        box.exit(status)
        keep()
    written = frozenset().union(*(_parts(state_of(raw)) for raw in snapshots))
    return History(tuple(snapshots), written)


def _check(history: History, raw: bytes) -> None:
    reading = parse_box(raw, "box")
    if isinstance(reading, Known):
        assert _parts(reading.value) <= history.parts


def test_a_cut_at_every_length_leaves_only_what_was_written(history: History) -> None:
    """A file that ends early, at whatever byte of its interesting regions, gives a part of the truth or nothing."""
    raw = history.snapshots[-1]
    ends = {end for cells in layout.LAYOUT for end in range(cells.offset, min(cells.offset + 700, len(raw)))}
    for length in sorted(ends | set(range(200)) | set(range(0, len(raw), 97))):
        _check(history, raw[:length])
    assert isinstance(parse_box(raw[:100], "box"), Unknown)
    assert (
        state_of(raw[: layout.FAILURES.offset]).operations,
        state_of(raw[: layout.FAILURES.offset]).failures,
    ) == (state_of(raw).operations, ())


@settings(max_examples=400)
@given(data=st.data())
def test_any_flipped_byte_hides_a_record_and_changes_none(history: History, data: st.DataObject) -> None:
    """One wrong byte, most of all inside a cell in use, never yields a record that nobody wrote."""
    raw = bytearray(data.draw(st.sampled_from(history.snapshots)))
    used = [at for cells in layout.LAYOUT for at in range(cells.offset, min(cells.offset + 1200, cells.end))]
    at = data.draw(st.one_of(st.sampled_from(used), st.integers(0, len(raw) - 1)))
    raw[at] ^= data.draw(st.integers(1, 255))
    _check(history, bytes(raw))


@settings(max_examples=300)
@given(data=st.data())
def test_two_moments_mixed_give_records_of_one_of_them(history: History, data: st.DataObject) -> None:
    """A reader that copies while the writer stores sees words of two moments; each record is still whole."""
    early, late = sorted(data.draw(st.tuples(*[st.integers(0, len(history.snapshots) - 1)] * 2)))
    grain = data.draw(st.sampled_from([8, 16, 64, 512, 4096]))
    chosen = random.Random(data.draw(st.integers(0, 1 << 32)))
    mixed = b"".join(
        history.snapshots[chosen.choice((early, late))][at : at + grain] for at in range(0, layout.SIZE, grain)
    )
    _check(history, mixed)


@settings(max_examples=200)
@given(raw=st.binary(max_size=300), at=st.integers(0, layout.SIZE - 300))
def test_any_bytes_anywhere_are_survived(history: History, raw: bytes, at: int) -> None:
    """Random bytes over a real box, or alone, neither raise nor add a record."""
    box = history.snapshots[-1]
    _check(history, box[:at] + raw + box[at + len(raw) :])
    parse_box(raw, "box")
    parse_box(layout.PRELUDE.pack(layout.MAGIC, layout.MAJOR, layout.MINOR, layout.SIZE) + raw, "box")


@given(raw=st.one_of(st.binary(max_size=200), st.recursive(st.none() | st.text(), st.lists).map(repr).map(str.encode)))
def test_texts_with_a_right_checksum_but_odd_content_are_no_records(raw: bytes) -> None:
    """Another process may write boxes: JSON of any shape is survived."""
    assert decode_about(raw) is None
    assert decode_failure(raw) is None


@pytest.mark.parametrize(
    "raw",
    [b"[" * 4000, b'{"at_wall_s":' + b"9" * 4000 + b"}", b'{"life":NaN}', b"\xff\xfe", b"null", b'{"pid":true}'],
    ids=["deep", "long-number", "nan", "no-utf8", "null", "bool"],
)
def test_hostile_json_is_survived(raw: bytes) -> None:
    """Deep nesting, endless numbers and wrong types are absence."""
    assert decode_about(raw) is None
    assert decode_failure(raw) is None


def test_a_length_beyond_its_cell_is_never_followed(history: History) -> None:
    """A record that claims more bytes than its cell holds is absent, even when the file holds that many."""
    raw = bytearray(history.snapshots[-1])
    at = layout.OPERATIONS.buffer(0, layout.read_cell(bytes(raw), layout.OPERATIONS, 0)[0])  # type: ignore[index]
    raw[at + 4 : at + 8] = (1 << 31).to_bytes(4, "little")
    before = {operation.label for operation in state_of(history.snapshots[-1]).operations}
    after = {operation.label for operation in state_of(bytes(raw)).operations}
    assert len(before - after) == 1


def test_a_store_cut_off_before_its_publish_word_leaves_the_older_record(history: History) -> None:
    """The bytes of a newer record without its word do not exist, whether whole or torn."""
    for earlier, later in zip(history.snapshots, history.snapshots[1:], strict=False):
        words = {cells.cell(index) for cells in layout.LAYOUT for index in range(cells.count)}
        mixed = bytearray(later)
        for at in words:
            mixed[at : at + 8] = earlier[at : at + 8]
        for cells in layout.LAYOUT:
            if cells.copies == 1:  # the only buffer is unpublished first
                mixed[cells.offset : cells.end] = earlier[cells.offset : cells.end]
        before, found = state_of(earlier), state_of(bytes(mixed))
        assert (before.operations, before.beats, before.exit_mark) == (found.operations, found.beats, found.exit_mark)
