"""A record where a reader may do little: another user, a mount that is read-only, a disk that is full."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.cli import main
from sidecar.record.reading import RecordError, open_record
from tests.sidecar.record.keeping import Content, keep, minute, told, writer
from tests.sidecar.small_disks import remount, small_disk

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="other users and mounts need root")]
NOBODY = 65534


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user may write to, as an emptyDir is, in a place that every user can reach."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        with small_disk(Path(place, "shared"), 8) as disk:
            disk.chmod(0o777)
            yield disk


def as_nobody(act: Callable[[], None]) -> None:
    """Do it as another user, in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            act()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - shown, and told by the status
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def names(folder: Path) -> set[str]:
    """What lies in a folder."""
    return {one.name for one in folder.iterdir()}


def read(folder: Path) -> None:
    """The record of `minute()` is there, all of it."""
    with open_record(folder) as reader:
        assert len(list(reader.samples())) == 3
        assert len(reader.incidents()[0].series) == 21


def test_another_user_reads_beside_the_writer_and_after_it(shared: Path) -> None:
    """It leaves no file of its own, which would keep the sidecar from its record; the sidecar goes on."""
    path = shared / "record.sqlite"
    with writer(path, minute()):
        before = names(shared)
        as_nobody(lambda: read(shared))
        assert names(shared) == before
    after = names(shared)
    as_nobody(lambda: read(shared))
    assert names(shared) == after
    with writer(path, Content(events=[told(2, 9, "later")])):
        as_nobody(lambda: read(shared))


def test_a_user_who_may_not_read_is_told_so(shared: Path) -> None:
    """In one line, with what to do."""
    keep(shared / "record.sqlite", minute()).chmod(0o600)

    def refused() -> None:
        with pytest.raises(
            RecordError, match="may not be read by this user; run as the user of the sidecar, or copy it"
        ):
            open_record(shared)

    as_nobody(refused)


@pytest.mark.parametrize("killed", [False, True])
def test_a_read_only_mount_is_read(shared: Path, *, killed: bool) -> None:
    """Also with the log of a writer that was killed, of which SQLite then makes an index in memory."""
    child = os.fork()
    if child == 0:
        with writer(shared / "record.sqlite", minute()):
            if killed:
                os._exit(0)
        os._exit(0)
    os.waitpid(child, 0)
    assert ("record.sqlite-wal" in names(shared)) is killed
    remount(shared, "ro")
    try:
        read(shared)
        as_nobody(lambda: read(shared))
    finally:
        remount(shared, "rw")


@pytest.mark.parametrize("command", ["export", "bundle"])
def test_a_disk_that_fills_up_leaves_no_half_file(
    tmp_path: Path, shared: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """One line, status 2, and the disk as it was."""
    with small_disk(tmp_path / "full", 1) as full:
        noise = os.urandom(512 << 10).hex() * 2
        content = minute()
        content.events += [told(number, number, noise) for number in range(2, 4)]
        record = keep(shared / "record.sqlite", content)
        words = ("--no-redact",) if command == "bundle" else ()
        assert main([command, "--record", str(record), *words, "-o", str(full / "out")]) == 2
        assert capsys.readouterr().err == f"oomguard: {command}: {full}/out: No space left on device\n"
        assert names(full) == set()
