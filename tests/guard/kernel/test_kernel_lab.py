"""What real cgroups do: removal, kills at two levels, the view through a namespace. Whichever version is mounted."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from guard.kernel.locate import locate
from guard.kernel.memcg import headroom_bytes, oom_kills, unreclaimable_bytes
from guard.kernel.reader import CGROUP2_MAGIC, CGROUP_MAGIC, KeptFile, Reader
from guard.kernel.values import CgroupVersion, Chain, LevelPath, LevelScope, MemoryLevel
from guard.model import UNLIMITED, Known, Limit, Reading, Unknown, Why
from tests.lab.kit.cgroups import MIB, Cgroup, Limits
from tests.lab.kit.loads import command
from tests.lab.kit.namespaces import Apart, inner_pid
from tests.lab.kit.offer import offer
from tests.lab.kit.wait import until
from tests.recorded.summary import read_level

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(offer().mode is None, reason=f"no cgroups can be made here: {offer().reason}"),
]
LIMIT = 32 * MIB


@contextmanager
def _kept(path: str) -> Iterator[KeptFile]:
    kept = Reader().keep(path)
    assert isinstance(kept, KeptFile)
    try:
        yield kept
    finally:
        kept.close()


def _chain(pid: int) -> Chain:
    found = locate(Reader(), pid)
    assert isinstance(found, Known), found
    return found.value


def _known(reading: Reading[Limit] | Reading[int]) -> int:
    assert isinstance(reading, Known), reading
    assert reading.value is not UNLIMITED
    return reading.value


def _own(pid: int) -> tuple[LevelPath, MemoryLevel]:
    own = _chain(pid).levels[0]
    return own, read_level(Reader(), own)


def _usage_file(path: LevelPath) -> str:
    name = "memory.current" if path.version is CgroupVersion.V2 else "memory.usage_in_bytes"
    return f"{path.memory_dir}/{name}"


def test_a_removed_group_is_gone() -> None:
    """A kept file of a removed cgroup reads GONE (ENODEV), while its path is MISSING."""
    with Cgroup.make("removed") as group:
        process = group.spawn(command("sleep"))
        until(lambda: _chain(process.pid).levels[0].name == group.path, 30, "the process to join")
        own = _chain(process.pid).levels[0]
        with _kept(_usage_file(own)) as kept:
            assert isinstance(kept.read(), Known)
            group.remove()
            found = kept.read()
    assert isinstance(found, Unknown)
    assert (found.why, found.errno) == (Why.GONE, errno.ENODEV)
    missing = Reader().read(_usage_file(own))
    assert isinstance(missing, Unknown)
    assert missing.why is Why.MISSING


def test_the_file_system_of_a_group_is_told() -> None:
    """A file of a cgroup lies on a cgroup file system, which its receiver can check."""
    with Cgroup.make("magic") as group, _kept(str(group.trees["memory"] / "cgroup.procs")) as kept:
        magic = kept.fs_magic()
    assert magic in (Known(CGROUP_MAGIC), Known(CGROUP2_MAGIC))


def test_growth_shows_as_unreclaimable_and_takes_headroom() -> None:
    """Anonymous memory counts in full; limit, unreclaimable memory and headroom add up."""
    with Cgroup.make("growth", Limits(memory_max_bytes=LIMIT)) as group:
        process = group.spawn(command("grow rate=400 upto=16"))
        until(lambda: _is_held(process.pid, group, 16 * MIB), 30, "16 MiB to be unreclaimable")
        own, level = _own(process.pid)
        held, room = _known(unreclaimable_bytes(level)), _known(headroom_bytes(level, Known(0)))
    assert level.max_bytes == Known(LIMIT)
    assert room == LIMIT - held
    assert held < 30 * MIB
    assert own.scope is LevelScope.OTHER


def _is_held(pid: int, group: Cgroup, size: int) -> bool:
    own, level = _own(pid)
    return own.name == group.path and _known(unreclaimable_bytes(level)) > size


def test_page_cache_does_not_take_headroom(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A group full of clean page cache is at its limit and has most of its headroom."""
    weights = tmp_path_factory.mktemp("cache") / "weights"
    with Cgroup.make("cache", Limits(memory_max_bytes=LIMIT)) as group:
        process = group.spawn(command(f"cache path={weights} size=64"))
        until(lambda: _is_full_of_clean_cache(process.pid, group), 30, "the group to be full of clean page cache")
        group.kill_all()
    weights.unlink()


def _is_full_of_clean_cache(pid: int, group: Cgroup) -> bool:
    own, level = _own(pid)
    full = own.name == group.path and _known(level.current_bytes) > LIMIT - MIB
    return full and _known(headroom_bytes(level, Known(0))) > LIMIT // 2


def test_a_kill_at_the_parents_limit_is_counted() -> None:
    """v2 counts a kill in the victim's level and above; v1 in the victim's level alone, whoever's limit it was."""
    with Cgroup.make("parent", Limits(memory_max_bytes=LIMIT)) as parent:
        leaf = parent.child("leaf", Limits())
        process = leaf.spawn(command("child rate=400"), output=subprocess.PIPE)
        assert process.stdout is not None
        assert any(b"ended with -9" in line for line in process.stdout)
        levels = _chain(process.pid).levels
        kills = [oom_kills(read_level(Reader(), level)) for level in levels[:2]]
    above = 1 if levels[0].version is CgroupVersion.V2 else 0
    assert kills == [Known(1), Known(above)]


def test_the_root_is_told_from_a_namespaces_root() -> None:
    """Seen from outside nothing is hidden above a process in a namespace of its own; its levels end at the root."""
    with Cgroup.make("outside") as group:
        process = group.spawn(command("sleep"))
        until(lambda: _chain(process.pid).levels[0].name == group.path, 30, "the process to join")
        chain = _chain(process.pid)
    assert not chain.hidden_ancestors
    assert chain.levels[-1].scope is LevelScope.ROOT


def test_inside_a_namespace_ancestors_are_hidden() -> None:
    """In a cgroup namespace a process sees its own group as "/" and knows that there is more above it."""
    code = "from guard.kernel.locate import locate\nfrom guard.kernel.reader import Reader\nprint(locate(Reader()))"
    with Cgroup.make("inside", Limits(memory_max_bytes=LIMIT)) as group:
        inside = group.spawn([sys.executable, "-c", code], apart=Apart(), output=subprocess.PIPE)
        printed, _ = inside.communicate(timeout=50)
    text = printed.decode()
    assert "hidden_ancestors=True" in text, text
    assert text.count("LevelPath(") == 1
    assert "name='/'" in text
    assert "LevelScope.CONTAINER" in text


def test_a_process_in_a_namespace_is_found_from_outside() -> None:
    """A process in a cgroup and PID namespace of its own is located by its outer pid, with all levels."""
    with Cgroup.make("found") as group:
        outer = group.spawn(command("sleep"), apart=Apart())
        pid = until(lambda: inner_pid(outer.pid), 30, "the inner process")
        chain = _chain(pid)
    assert chain.levels[0].name == group.path
    assert not chain.hidden_ancestors
