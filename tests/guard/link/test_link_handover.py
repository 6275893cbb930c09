"""Gathering what to hand over: everything there is, nothing left open, never more than a message carries."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from guard.kernel import memcg
from guard.kernel.reader import Reader
from guard.kernel.values import CgroupVersion
from guard.link.handover import Who, gather
from guard.link.protocol import MOST_DESCRIPTORS, Role, encode
from guard.model import LifeId

WHO = Who(name="m", life=LifeId("boot", 1, 2, "s"), parent_session="p", command="serve", role=Role.GUARD)
FILES = [file.name for file in memcg.FILES[CgroupVersion.V2]]


def _open_count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def deep(tmp_path: Path) -> Callable[[int], Reader]:
    """A tree with a v2 chain so many levels deep."""

    def make(levels: int) -> Reader:
        path = "".join(f"/l{number}" for number in range(levels - 1))
        process = tmp_path / "proc/self"
        process.mkdir(parents=True)
        (process / "cgroup").write_text(f"0::{path or '/'}\n")
        (process / "mountinfo").write_text("30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        (process / "stat").write_text("1 (x) S\n")
        for number in range(levels):
            folder = tmp_path / "sys/fs/cgroup" / "/".join(f"l{each}" for each in range(number))
            folder.mkdir(parents=True, exist_ok=True)
            for name in [*FILES, "cgroup.procs"]:
                (folder / name).write_text("0\n")
        return Reader(str(tmp_path))

    return make


def test_our_own_process_hands_over_its_files_and_a_pidfd() -> None:
    """On a live system the process files, the pidfd and the own level are there; names and descriptors match."""
    before = _open_count()
    given = gather(Reader(), WHO)
    names = given.hello.descriptors
    assert {"proc/status", "proc/stat", "proc/statm", "proc/io", "pidfd"} <= set(names)
    assert any(name.startswith("levels/0/memory.") for name in names)
    assert len(names) == len(given.descriptors) == len(set(given.descriptors))
    assert before + len(names) == _open_count()
    for name, fd in zip(names, given.descriptors, strict=True):
        if name != "pidfd":
            assert Path(name).name == Path(f"/proc/self/fd/{fd}").readlink().name
        assert not os.get_inheritable(fd)
    given.close()
    assert before == _open_count()


def test_the_box_is_copied_and_the_callers_descriptor_stays_open(tmp_path: Path) -> None:
    """Closing the hand-over closes the copy alone."""
    (tmp_path / "box").write_text("")
    fd = os.open(tmp_path / "box", os.O_RDONLY)
    given = gather(Reader(), WHO, box_fd=fd)
    assert "box" in given.hello.descriptors
    assert fd not in given.descriptors
    given.close()
    os.fstat(fd)
    os.close(fd)


def test_without_visible_cgroups_the_rest_is_handed_over(tmp_path: Path) -> None:
    """A process whose cgroup cannot be located hands over no level and says that its ancestors are hidden."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("")
    given = gather(Reader(str(tmp_path)), WHO)
    assert (given.hello.levels, given.hello.hidden_ancestors) == ((), True)
    assert given.hello.descriptors == ("proc/status", "pidfd")
    given.close()


def test_the_nearest_levels_win_where_a_message_cannot_carry_all(deep: Callable[[int], Reader]) -> None:
    """Beyond 250 descriptors whole levels are left out, farthest first, and the hello says that something is hidden."""
    before = _open_count()
    given = gather(deep(40), WHO)
    whole = (MOST_DESCRIPTORS - 2) // len(FILES)
    assert whole == len(given.hello.levels)
    assert [f"levels/{whole - 1}/{name}" for name in FILES] == list(given.hello.descriptors[-len(FILES) :])
    assert given.hello.hidden_ancestors
    assert list(range(whole)) == [level.depth for level in given.hello.levels]
    encode(given.hello)
    given.close()
    assert before == _open_count()


def test_missing_files_are_left_out(deep: Callable[[int], Reader], tmp_path: Path) -> None:
    """An older kernel lacks files; their names are not sent."""
    reader = deep(1)
    (tmp_path / "sys/fs/cgroup/memory.peak").unlink()
    given = gather(reader, WHO)
    assert "levels/0/memory.peak" not in given.hello.descriptors
    assert "levels/0/memory.current" in given.hello.descriptors
    given.close()


def test_long_names_are_cut_to_what_a_hello_may_say() -> None:
    """A long command or model name does not make the hello malformed."""
    who = Who(name="n" * 5000, life=WHO.life, parent_session=None, command="c" * 50_000, role=Role.RUNNER)
    given = gather(Reader(), who)
    given.close()
    assert len(encode(given.hello)) < 32 << 10
    assert (len(given.hello.name), len(given.hello.command)) == (256, 1024)
