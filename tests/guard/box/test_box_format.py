"""The layout itself, and the page that documents it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from guard.box import format as layout

PAGE = (Path(__file__).parents[3] / "docs" / "box-format.md").read_text()


def _rows(section: str) -> list[list[str]]:
    """Cells of a marked table, without its two head lines."""
    found = re.search(f"<!-- {section} -->\n(.*?)<!-- /{section} -->", PAGE, re.DOTALL)
    assert found is not None
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found[1].splitlines()[2:]]


def test_the_documented_layout_is_the_real_one() -> None:
    """Every row of the table gives the numbers of the code, in file order."""
    prelude, *rows, end = _rows("layout")
    assert [
        [str(c.offset), str(c.count), str(c.stride), str(c.copies), str(c.payload_room), c.name, c.holds]
        for c in layout.LAYOUT
    ] == rows
    magic = layout.MAGIC.decode().replace("\0", "\\0")
    assert prelude[-1] == (
        f"magic `{magic}`, major {layout.MAJOR}, minor {layout.MINOR} (2 bytes each), size {layout.SIZE} (4 bytes)"
    )
    assert str(layout.PRELUDE.size) == prelude[2]
    assert str(layout.SIZE) == end[0]


def test_the_documented_payloads_are_the_real_ones() -> None:
    """Struct formats and rooms of texts are those of the code."""
    operations, beats, sigterm, exit_mark = _rows("payloads")
    for row, structure in (
        (operations, layout.OPERATION),
        (beats, layout.BEAT),
        (sigterm, layout.SIGTERM_MARK),
        (exit_mark, layout.EXIT_MARK),
    ):
        assert f"`{structure.format}`" == row[1].split(":")[0]
    rooms = (layout.LABEL_ROOM, layout.FILE_ROOM, layout.THREAD_ROOM, layout.ITEM_ROOM)
    assert "label {}, file {}, thread {}, item {} bytes at most".format(*rooms) == operations[2]
    assert f"name {layout.BEAT_NAME_ROOM} bytes at most" == beats[2]
    for kind, code in layout.KIND_CODES.items():
        assert f"{code} {kind}" in operations[1]


def test_cells_do_not_overlap_and_words_are_aligned() -> None:
    """Rows follow each other within the file, a buffer stays in its cell, and a word never crosses 8 bytes."""
    ends = [layout.PRELUDE.size, *(cells.end for cells in layout.LAYOUT)]
    assert all(cells.offset >= end for cells, end in zip(layout.LAYOUT, ends, strict=False))
    assert layout.LAYOUT[-1].end == layout.SIZE <= 64 << 10
    for cells in layout.LAYOUT:
        for index in range(cells.count):
            assert cells.cell(index) % layout.WORD.size == 0
            for sequence in range(1, 4):
                at = cells.buffer(index, sequence)
                assert cells.cell(index) + layout.WORD.size <= at
                assert at + cells.buffer_room <= cells.cell(index) + cells.stride


def test_the_longest_payloads_fit() -> None:
    """A record with every text at its room fits its cell."""
    texts = layout.LABEL_ROOM + layout.FILE_ROOM + layout.THREAD_ROOM + layout.ITEM_ROOM
    assert layout.OPERATION.size + texts <= layout.OPERATIONS.payload_room
    assert layout.BEAT.size + layout.BEAT_NAME_ROOM <= layout.BEATS.payload_room
    assert layout.SIGTERM_MARK.size <= layout.SIGTERM.payload_room
    assert layout.EXIT_MARK.size <= layout.EXIT.payload_room


@pytest.mark.parametrize("text", ["", "x", "ä" * 50, "x" * 96, "漢字" * 60, "\udc80" * 40], ids=len)
def test_cut_texts_are_valid_and_fit(text: str) -> None:
    """Cutting keeps whole characters, and nothing is cut that fits."""
    for cut in (layout.fit_head, layout.fit_tail):
        raw = cut(text, 96)
        assert len(raw) <= 96
        raw.decode()
    if len(text.encode("utf-8", "replace")) <= 96 and text.isprintable():
        assert text.encode() == layout.fit_head(text, 96) == layout.fit_tail(text, 96)
