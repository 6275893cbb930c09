"""Records that cannot be gone on with: damaged, of another schema, somebody else's, no file. They are put aside."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from board_makers import incident, judgement, sample
from recordings import aside, recording, rows, tick

from sidecar.outputs.record_file import SCHEMA_VERSION
from sidecar.outputs.record_store import Loaded
from tests.sidecar.eventually import eventually


def cut(path: Path) -> None:
    """Half a file."""
    os.truncate(path, path.stat().st_size // 2)


def garble(path: Path) -> None:
    """Other bytes in the middle."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(3 * 4096))


def replace_by_text(path: Path) -> None:
    """Not a database at all."""
    path.write_text("hello" * 1000)


def break_schema(path: Path) -> None:
    """A table's definition that is not even text: SQLite quotes its bytes in what it says."""
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE samples", b"CREATE TABL\xff samples"))


@pytest.mark.parametrize("damage", [cut, garble, replace_by_text, break_schema])
async def test_a_damaged_record_is_moved_aside_and_a_new_one_begun(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """The sidecar starts, says where the old file is, and writes."""
    path = tmp_path / "record.sqlite"
    async with recording(path) as (recorder, _):
        for number in range(50):
            recorder.put_sample(sample(tick(number, 1.0)), judgement())
            recorder.put_incident(incident(f"i-{number}"))
        assert await recorder.flush()
    damage(path)
    async with recording(path) as (recorder, loaded):
        assert loaded == Loaded()
        [notice] = recorder.take_notices()
        assert notice.kind == "record_moved_aside"
        assert "was damaged; it is now" in notice.text
        recorder.put_incident(incident("new"))
        assert await recorder.flush()
    assert len(aside(path, "damaged")) == 1
    assert rows(path, "SELECT id FROM incidents") == [("new",)]


async def test_damage_in_the_middle_costs_no_waiting_incident_and_no_count(tmp_path: Path) -> None:
    """A file garbled under the running sidecar is replaced; what was not yet written goes to the new one."""
    path = tmp_path / "record.sqlite"
    async with recording(path) as (recorder, _):
        for number in range(400):
            recorder.put_incident(incident(f"i-{number}"))
            assert number % 100 or await recorder.flush()
        assert await recorder.flush()
        scramble(path)
        for number in range(400):  # refining reads the old rows, which are no longer there
            recorder.put_incident(incident(f"i-{number}"))
        recorder.put_incident(incident("last"))
        await eventually(lambda: aside(path, "damaged"), "the damaged record to be put aside")
        await eventually(lambda: recorder.health().degraded is None, "the record to be written")
        assert await recorder.flush()
        assert [notice.kind for notice in recorder.take_notices()] == [
            "record_degraded",
            "record_moved_aside",
            "record_recovered",
        ]
    async with recording(path) as (_, again):
        assert again.incidents[0].id == "last"
        assert again.ends["llm"]["cgroup_oom"] >= 401


def scramble(path: Path) -> None:
    """Other bytes everywhere but in the first page."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
async def test_a_record_of_another_schema_is_kept_aside(tmp_path: Path, version: int) -> None:
    """An older or newer sidecar's record is not touched, only renamed, with its version in the name."""
    path = tmp_path / "record.sqlite"
    async with recording(path) as (recorder, _):
        recorder.put_incident(incident("old"))
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    async with recording(path) as (recorder, loaded):
        assert loaded.incidents == ()
        [notice] = recorder.take_notices()
    [old] = aside(path, f"schema-{version}")
    assert str(old) in notice.text
    assert rows(old, "SELECT id FROM incidents") == [("old",)]


async def test_a_foreign_database_is_kept_aside(tmp_path: Path) -> None:
    """Somebody else's tables at our path are not dropped."""
    path = tmp_path / "record.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    async with recording(path) as (recorder, _):
        recorder.put_incident(incident("a"))
        assert await recorder.flush()
    [old] = aside(path, "foreign")
    assert rows(old, "SELECT name FROM sqlite_schema") == [("mine",)]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/passwd")])
async def test_what_is_not_a_file_is_not_opened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A FIFO would block, a link lead elsewhere: both are moved out of the way."""
    path = tmp_path / "record.sqlite"
    make(path)
    async with recording(path) as (recorder, _):
        recorder.put_incident(incident("a"))
        assert await recorder.flush()
    assert len(aside(path, "not-a-file")) == 1


@pytest.mark.parametrize("tail", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/nowhere")])
async def test_what_is_not_a_file_beside_it_is_moved_as_well(
    tmp_path: Path, make: Callable[[Path], None], tail: str
) -> None:
    """SQLite would fail on it for ever, so it goes aside with the record that there is, and a new one is begun."""
    path = tmp_path / "record.sqlite"
    path.write_bytes(b"what was")
    make(tmp_path / f"record.sqlite{tail}")
    async with recording(path) as (recorder, _):
        recorder.put_incident(incident("a"))
        assert await recorder.flush()
    assert rows(path, "SELECT id FROM incidents") == [("a",)]
    [old] = aside(path, "not-a-file")
    assert old.read_bytes() == b"what was"


async def test_folders_put_aside_keep_no_record_from_being_kept(tmp_path: Path) -> None:
    """What cannot be removed stays, and the record is begun all the same."""
    path = tmp_path / "record.sqlite"
    for turn in range(5):
        (tmp_path / f"record.sqlite.not-a-file-{turn}Z" / "full").mkdir(parents=True)
    path.mkdir()
    async with recording(path) as (recorder, _):
        recorder.put_incident(incident("a"))
        assert await recorder.flush()


async def test_damaged_files_do_not_pile_up(tmp_path: Path) -> None:
    """A crash loop that damages the record each time leaves three files aside."""
    path = tmp_path / "record.sqlite"
    for turn in range(6):
        path.write_text(f"no database {turn}" * 100)
        async with recording(path):
            pass
        for one in aside(path, "damaged"):
            one.rename(one.with_name(f"{one.name[:-1]}{turn}Z"))  # the frozen clock gives one stamp to all
    assert len(aside(path, "damaged")) == 3
