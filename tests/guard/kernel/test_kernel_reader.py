"""The reader, on real files, pipes, processes and rights."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from guard.kernel.reader import CGROUP2_MAGIC, CGROUP_MAGIC, PROC_MAGIC, KeptFile, Reader, unknown_from
from guard.model import Known, Unknown, Why

NOBODY = 65534


def _as_nobody(code: str, *arguments: str) -> str:
    """Run Python code as another user, with the reader imported before the rights are dropped; return its output."""
    prelude = "import os, sys; from guard.kernel.reader import Reader; os.setgid(65534); os.setuid(65534); "
    done = subprocess.run(
        [sys.executable, "-c", prelude + code, *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    return done.stdout.strip()


def _kept(path: str, root: str = "/") -> KeptFile:
    kept = Reader(root).keep(path)
    assert isinstance(kept, KeptFile)
    return kept


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    """A file that does not exist reads MISSING with its path as the reader was asked for it."""
    assert Unknown(Why.MISSING, "/proc/none", errno.ENOENT, "ENOENT") == Reader(str(tmp_path)).read("/proc/none")


def test_a_file_in_place_of_a_directory_is_missing(tmp_path: Path) -> None:
    """A path through a file reads MISSING (ENOTDIR)."""
    (tmp_path / "proc").write_text("")
    found = Reader(str(tmp_path)).read("/proc/meminfo")
    assert isinstance(found, Unknown)
    assert (found.why, found.errno) == (Why.MISSING, errno.ENOTDIR)


def test_a_directory_in_place_of_a_file_fails(tmp_path: Path) -> None:
    """A directory where a file should be reads FAILED (EISDIR), and its descriptor is closed."""
    (tmp_path / "memory.max").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    found = Reader(str(tmp_path)).read("/memory.max")
    assert isinstance(found, Unknown)
    assert (found.why, found.errno) == (Why.FAILED, errno.EISDIR)
    assert before == len(list(Path("/proc/self/fd").iterdir()))


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    """A FIFO without a writer in place of a file is answered at once."""
    os.mkfifo(tmp_path / "memory.max")
    found = Reader(str(tmp_path)).read("/memory.max")
    assert isinstance(found, Unknown)
    assert (found.why, found.errno) == (Why.FAILED, errno.ESPIPE)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to drop rights")
def test_a_file_of_another_user_is_denied(tmp_path: Path) -> None:
    """A file without read permission reads DENIED."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    secret = tmp_path / "memory.max"
    secret.write_text("max\n")
    secret.chmod(0o600)
    assert _as_nobody("print(Reader(sys.argv[1]).read('/memory.max'))", str(tmp_path)) == "/memory.max: denied (EACCES)"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to drop rights")
def test_the_io_of_another_users_process_is_denied() -> None:
    """/proc/PID/io of a process that one may not trace reads DENIED, while its status can be read."""
    denied = _as_nobody("print(Reader().read('/proc/1/io'), type(Reader().read('/proc/1/status')).__name__)")
    assert denied == "/proc/1/io: denied (EACCES) Known"


def test_a_reaped_process_is_gone() -> None:
    """A kept file of a process reads on until the process is reaped, then GONE (ESRCH)."""
    with subprocess.Popen(["sleep", "60"]) as process:
        kept = _kept(f"/proc/{process.pid}/status")
        assert isinstance(kept.read(), Known)
        process.kill()
    found = kept.read()
    kept.close()
    assert isinstance(found, Unknown)
    assert (found.why, found.errno) == (Why.GONE, errno.ESRCH)


@pytest.mark.parametrize("path", ["/a\0b", "/\ud800x"])
def test_an_impossible_path_is_missing(path: str) -> None:
    """A path that the system cannot express is MISSING, not an exception."""
    for found in (Reader().read(path), Reader().listdir(path), Reader().identity(path), Reader().readlink(path + "/x")):
        assert isinstance(found, Unknown)
        assert Why.MISSING is found.why


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_an_impossible_link_name_is_missing(name: str) -> None:
    """The last name of a link's path is checked as well."""
    found = Reader().readlink(f"/proc/{name}")
    assert isinstance(found, Unknown)
    assert Why.MISSING is found.why


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.ENOENT, Why.MISSING),
        (errno.EACCES, Why.DENIED),
        (errno.EPERM, Why.DENIED),
        (errno.ENODEV, Why.GONE),
        (errno.ESRCH, Why.GONE),
        (errno.EOPNOTSUPP, Why.UNSUPPORTED),
        (errno.EIO, Why.FAILED),
        (errno.EINVAL, Why.FAILED),
    ],
)
def test_each_errno_has_its_reason(number: int, why: Why) -> None:
    """An errno becomes a reason and is kept."""
    assert Unknown(why, "x", number, errno.errorcode[number]) == unknown_from(OSError(number, "text"), "x")


def test_an_error_without_a_number_is_failed() -> None:
    """An OSError that carries no errno is FAILED."""
    assert Unknown(Why.FAILED, "x", None, "") == unknown_from(OSError("odd"), "x")


def test_dots_do_not_leave_the_root(tmp_path: Path) -> None:
    """`..` at the root of a tree stays there."""
    (tmp_path / "out").write_text("secret\n")
    root = tmp_path / "tree"
    root.mkdir()
    found = Reader(str(root)).read("/../out")
    assert isinstance(found, Unknown)
    assert Why.MISSING is found.why


@pytest.mark.parametrize("target", ["/etc/passwd", "../out"])
def test_links_do_not_leave_the_root(tmp_path: Path, target: str) -> None:
    """A symbolic link that leads out of a tree is refused, for a file and for a directory on the way."""
    (tmp_path / "out").write_text("secret\n")
    root = tmp_path / "tree"
    root.mkdir()
    (root / "link").symlink_to(target)
    for found in (
        Reader(str(root)).read("/link"),
        Reader(str(root)).listdir("/link"),
        Reader(str(root)).identity("/link"),
    ):
        assert isinstance(found, Unknown)
        assert Why.DENIED is found.why


def test_a_link_inside_the_root_is_followed(tmp_path: Path) -> None:
    """A link within a tree works and its text can be read."""
    (tmp_path / "real").write_text("1\n")
    (tmp_path / "link").symlink_to("real")
    assert Known(b"1\n") == Reader(str(tmp_path)).read("/link")
    assert Known("real") == Reader(str(tmp_path)).readlink("/link")


def test_what_is_no_link_cannot_be_read_as_one(tmp_path: Path) -> None:
    """A missing link is MISSING, a plain file FAILED (EINVAL)."""
    (tmp_path / "plain").write_text("")
    reader = Reader(str(tmp_path))
    found = [reader.readlink("/none"), reader.readlink("/plain")]
    assert [reading.why for reading in found if isinstance(reading, Unknown)] == [Why.MISSING, Why.FAILED]


def test_a_directory_is_listed_in_order(tmp_path: Path) -> None:
    """The names of a directory come sorted; a missing one is MISSING."""
    for name in ("b", "a"):
        (tmp_path / name).write_text("")
    assert Known(("a", "b")) == Reader(str(tmp_path)).listdir("/")
    assert isinstance(Reader(str(tmp_path)).listdir("/none"), Unknown)


def test_the_identity_is_device_and_inode(tmp_path: Path) -> None:
    """A file has the same identity by path and by descriptor."""
    (tmp_path / "a").write_text("")
    expected = Known(((tmp_path / "a").stat().st_dev, (tmp_path / "a").stat().st_ino))
    kept = _kept("/a", str(tmp_path))
    assert expected == Reader(str(tmp_path)).identity("/a") == kept.identity()
    kept.close()


def test_a_file_at_the_limit_is_read_and_a_longer_one_is_not_cut(tmp_path: Path) -> None:
    """`limit` bytes are fine; one more makes the file MALFORMED rather than shorter."""
    (tmp_path / "a").write_bytes(b"x" * 100)
    reader = Reader(str(tmp_path))
    assert Known(b"x" * 100) == reader.read("/a", 100)
    assert Unknown(Why.MALFORMED, "/a", None, "longer than 99 bytes") == reader.read("/a", 99)


def test_a_file_of_many_short_reads_is_whole() -> None:
    """A seq_file longer than its buffer comes in several short reads and is put together."""
    kept = _kept("/proc/self/smaps")
    first = os.pread(kept.fd, 1 << 20, 0)
    found = kept.read()
    kept.close()
    assert isinstance(found, Known)
    assert len(first) < len(found.value)
    assert found.value.endswith(b"\n")


def test_reading_again_gives_the_present_state(tmp_path: Path) -> None:
    """A kept file is read from its start each time."""
    (tmp_path / "a").write_text("1\n")
    kept = _kept("/a", str(tmp_path))
    assert Known(b"1\n") == kept.read()
    (tmp_path / "a").write_text("22\n")
    assert Known(b"22\n") == kept.read()
    kept.close()


def test_a_small_file_costs_two_reads() -> None:
    """Reading a kept file is the read and the one that finds its end, and no other system call."""
    code = (
        "from guard.kernel.reader import Reader\nimport os\n"
        "kept = Reader().keep('/proc/self/status')\n"
        "calls = []\nreal = os.pread\n"
        "os.pread = lambda *a: calls.append(a) or real(*a)\n"
        "kept.read()\nprint(len(calls))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    assert done.stdout.strip() == "2"


def test_a_closed_file_fails_and_closes_once(tmp_path: Path) -> None:
    """After close() every call says FAILED, and a second close() does not close someone else's descriptor."""
    (tmp_path / "a").write_text("1\n")
    kept = _kept("/a", str(tmp_path))
    kept.close()
    other = os.open("/dev/null", os.O_RDONLY)
    kept.close()
    os.close(other)
    calls: list[Callable[[], object]] = [kept.read, kept.read_next, kept.seek_end, kept.identity, kept.fs_magic]
    for call in calls:
        found = call()
        assert isinstance(found, Unknown)
        assert (found.why, found.errno) == (Why.FAILED, errno.EBADF)
    assert repr(kept) == "KeptFile(-1, '/a')"


def test_the_file_system_is_told(tmp_path: Path) -> None:
    """A file of /proc has the magic of proc, a file of /sys/fs/cgroup one of cgroup, an ordinary file neither."""
    kept = _kept("/proc/self/stat")
    assert Known(PROC_MAGIC) == kept.fs_magic()
    kept.close()
    (tmp_path / "a").write_text("")
    kept = _kept(str(tmp_path / "a"))
    magic = kept.fs_magic()
    kept.close()
    assert isinstance(magic, Known)
    assert magic.value not in (PROC_MAGIC, CGROUP_MAGIC, CGROUP2_MAGIC)


def test_a_stream_gives_what_is_there_and_then_nothing(tmp_path: Path) -> None:
    """`read_next` gives one message after another and empty bytes when there is none, without waiting."""
    os.mkfifo(tmp_path / "kmsg")
    kept = _kept("/kmsg", str(tmp_path))
    writer = os.open(tmp_path / "kmsg", os.O_WRONLY)
    assert Known(b"") == kept.read_next()
    os.write(writer, b"one\n")
    assert Known(b"one\n") == kept.read_next()
    os.close(writer)
    kept.close()


def test_a_stream_can_skip_what_is_old(tmp_path: Path) -> None:
    """`seek_end` goes behind what is there."""
    (tmp_path / "log").write_text("old\n")
    kept = _kept("/log", str(tmp_path))
    assert Known(4) == kept.seek_end()
    with (tmp_path / "log").open("a") as log:
        log.write("new\n")
    assert Known(b"new\n") == kept.read_next()
    kept.close()
