"""Reading a record from outside: beside a writer, after kill -9, from another user; and what is no record."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.export.lines import lines
from sidecar.outputs.record_file import LOG_BYTES
from sidecar.record.reading import RecordError, RecordReader, Span, open_record
from tests.sidecar.outputs.board_makers import sample
from tests.sidecar.record.keeping import BOOT, Content, at, ended, keep, minute, told, writer


def facts(path: Path) -> dict[str, tuple[int, int, int]]:
    """What lies in a folder: inode, size and time of the last change of each file."""
    return {one.name: (one.stat().st_ino, one.stat().st_size, one.stat().st_mtime_ns) for one in path.iterdir()}


def check(reader: RecordReader) -> None:
    """The record of `minute()` is there, all of it."""
    assert reader.models() == ("llm",)
    assert [row.row["levels"][0]["current"] for row in reader.samples()] == [104857600] * 3
    assert [event.text for event in reader.events()] == ["something"]
    (incident,) = reader.incidents()
    assert incident.document["class"] == "cgroup_oom"
    assert len(incident.series) == 21
    assert reader.skipped == 0


def test_a_record_that_was_closed_is_read(tmp_path: Path) -> None:
    """Every row comes back, by the file or by its folder, and the folder stays as it was."""
    path = keep(tmp_path / "record.sqlite", minute())
    before = facts(tmp_path)
    for name in (path, tmp_path, str(path)):
        with open_record(name) as reader:
            check(reader)
            assert reader.meta()["boot_id"] == BOOT
            assert reader.meta()["kernel"] == os.uname().release
    assert facts(tmp_path) == before


def test_a_record_that_is_being_written_is_read_and_not_touched(tmp_path: Path) -> None:
    """Beside a running sidecar no file is made or changed, and what comes later is seen by the next reader."""
    with writer(tmp_path / "record.sqlite", minute()) as record:
        before = facts(tmp_path)
        with open_record(tmp_path) as reader:
            check(reader)
            assert facts(tmp_path) == before
            Content(events=[told(2, 9, "later")]).write(record)
            assert [event.text for event in reader.events()] == ["something"]
        with open_record(tmp_path) as reader:
            assert [event.text for event in reader.events()] == ["something", "later"]


def test_a_record_is_read_after_its_writer_was_killed(tmp_path: Path) -> None:
    """Rows that only the write-ahead log has are there, nothing is changed, and the next sidecar goes on."""
    path = tmp_path / "record.sqlite"
    child = os.fork()
    if child == 0:
        with writer(path, minute()):
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert path.with_name("record.sqlite-wal").stat().st_size > 0
    before = facts(tmp_path)
    with open_record(path) as reader:
        check(reader)
    assert facts(tmp_path) == before
    with writer(path, Content(events=[told(2, 9, "later")])), open_record(path) as reader:
        assert [event.text for event in reader.events()] == ["something", "later"]


def test_a_copy_with_its_log_is_read(tmp_path: Path) -> None:
    """What `kubectl cp` brings of a running pod: the file and its log, without the index."""
    (tmp_path / "copy").mkdir()
    with writer(tmp_path / "record.sqlite", minute()):
        for tail in ("", "-wal"):
            shutil.copy(tmp_path / f"record.sqlite{tail}", tmp_path / "copy")
    with open_record(tmp_path / "copy") as reader:
        check(reader)


def test_a_slow_reader_does_not_hold_the_log(tmp_path: Path) -> None:
    """While somebody reads page by page, the sidecar's log is written over and stays small."""
    path = tmp_path / "record.sqlite"
    many = Content(samples=[sample(at(second)) for second in range(500)])
    with writer(path, many) as record, open_record(path) as reader:
        rows = reader.samples()
        next(rows)
        for _ in range(10):
            many.write(record)
            record.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        assert path.with_name("record.sqlite-wal").stat().st_size < 6 * LOG_BYTES
        assert len(list(rows)) == 499


def test_rows_are_chosen_by_model_and_time(tmp_path: Path) -> None:
    """Bounds are inclusive; another model's rows are left out."""
    content = Content(
        samples=[sample(at(second), model) for second in range(5) for model in ("llm", "embed")],
        events=[told(second, second) for second in range(5)],
    )
    with open_record(keep(tmp_path / "record.sqlite", content)) as reader:
        since, until = at(1).wall_s, at(3).wall_s
        chosen = list(reader.samples("embed", since, until))
        assert [(row.model, row.wall_s) for row in chosen] == [("embed", at(second).wall_s) for second in (1, 2, 3)]
        assert [event.id for event in reader.events(None, since, until)] == [1, 2, 3]
        assert reader.events("embed") == ()


def test_incidents_come_newest_first_and_by_the_start_of_their_id(tmp_path: Path) -> None:
    """A unique start is enough; none and several are told with the ids there are."""
    ends = [(ended(second, session=name), None) for second, name in enumerate(("aa1", "aa2", "bb1"))]
    with open_record(keep(tmp_path / "record.sqlite", Content(incidents=ends))) as reader:
        assert [one.id for one in reader.incidents(limit=2)] == ["bb1", "aa2"]
        assert [one.id for one in reader.each_incident()] == ["aa1", "aa2", "bb1"]
        assert reader.incident("b").id == "bb1"
        assert reader.incident("aa2").id == "aa2"
        with pytest.raises(RecordError, match="'aa' begins the ids of 2 incidents: aa2, aa1; give more letters"):
            reader.incident("aa")
        with pytest.raises(RecordError, match="no incident's id begins with 'zz'; there are bb1, aa2, aa1"):
            reader.incident("zz")
        assert reader.ends() == {"llm": 3}


def test_rows_in_no_shape_of_ours_are_left_out_and_counted(tmp_path: Path) -> None:
    """A record may be written by anybody in the pod: odd rows cost themselves, not the reading."""
    path = keep(tmp_path / "record.sqlite", minute())
    bomb = zlib.compress(b" " * (80 << 20), level=9)
    with sqlite3.connect(path) as connection:
        columns = "(boot_id, model, wall_s, monotonic_s, row)"
        for row in ("[1]", "{", "\udcff".encode("utf-8", "surrogateescape"), "[" * 100_000):
            connection.execute(f"INSERT INTO samples {columns} VALUES ('b', 'llm', 1.0, 1.0, ?)", (row,))
        connection.execute(f"INSERT INTO samples {columns} VALUES ('b', 'llm', 'noon', 1.0, '{{}}')")
        connection.execute("INSERT INTO incidents (id, model, wall_s, document) VALUES ('x', 'llm', 1.0, 'null')")
        connection.execute("UPDATE incidents SET series = ? WHERE id = 's1'", (bomb,))
    connection.close()
    with open_record(path) as reader:
        assert len(list(reader.samples())) == 3
        (incident,) = reader.incidents()
        assert incident.series == ()
        assert reader.skipped == 6


def text(path: Path) -> None:
    """A file of something else."""
    path.write_text("not a database at all\n" * 1000)


def foreign(path: Path) -> None:
    """A database of something else."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE samples (n)")
    connection.close()


def schema(path: Path) -> None:
    """A record of a later release."""
    with sqlite3.connect(keep(path)) as connection:
        connection.execute("PRAGMA user_version=7")
    connection.close()


def view(path: Path) -> None:
    """A record in which a table is a view: asking it could take forever."""
    with sqlite3.connect(keep(path)) as connection:
        connection.execute("DROP TABLE samples")
        connection.execute("CREATE VIEW samples AS SELECT 1 AS n")
    connection.close()


def broken_schema(path: Path) -> None:
    """A record with a table's definition that is not even text."""
    keep(path).write_bytes(path.read_bytes().replace(b"CREATE TABLE samples", b"CREATE TABL\xff samples"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "there is no record at"),  # noqa: ARG005 - nothing is made
        (text, "damaged, or no record; try"),
        (foreign, "is not a record of oomguard; give another file"),
        (schema, "has schema 7, this release reads schema 1; use the release of oomguard that wrote it"),
        (broken_schema, "damaged, or no record; try"),
        (view, "lacks samples; it is damaged, give another file"),
        (lambda path: path.touch(), "is empty so far; wait for the sidecar"),
        (os.mkfifo, "is not a regular file; give the record.sqlite"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    ],
)
def test_what_is_no_record_is_told_in_one_line(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    """Each says why and what to do."""
    path = tmp_path / "record.sqlite"
    make(path)
    with pytest.raises(RecordError) as caught:
        open_record(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damage_in_the_middle_is_told_when_it_is_met(tmp_path: Path) -> None:
    """The head is sound, so it opens; the reading ends in one line."""
    path = keep(tmp_path / "record.sqlite", Content(samples=[sample(at(second)) for second in range(200)]))
    with path.open("r+b") as file:
        file.seek(12 << 10)
        file.write(os.urandom(path.stat().st_size - (16 << 10)))
    with open_record(path) as reader, pytest.raises(RecordError, match="damaged, or no record; try"):
        list(reader.samples())


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a small record."""
    return keep(tmp_path_factory.mktemp("sound") / "record.sqlite", minute()).read_bytes()


noise = st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=64))


@given(st.lists(noise, max_size=20), st.none() | st.integers(0, 1 << 20))
def test_any_damage_is_rows_or_one_line(sound: bytes, places: list[tuple[int, bytes]], cut: int | None) -> None:
    """Bytes changed anywhere, and a cut at any length: what can be read is read, anything else is `RecordError`."""
    damaged = bytearray(sound)
    for place, put in places:
        damaged[place % len(sound) : place % len(sound) + len(put)] = put
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "record.sqlite")
        path.write_bytes(damaged if cut is None else damaged[: cut % len(damaged)])
        with suppress(RecordError), open_record(path) as reader:
            assert all(isinstance(row.row, dict) for row in reader.samples())
            assert all(isinstance(one.series, tuple) for one in reader.incidents())
            assert isinstance(reader.events(), tuple)
            assert all(line.row["kind"] == line.kind.value for line in lines(reader, Span(None, None, None)))
