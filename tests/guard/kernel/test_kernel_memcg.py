"""A level from its files, v1 and v2, whole and with holes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

import pytest

from guard.kernel import memcg
from guard.kernel.values import CgroupVersion, MemoryLevel, OomControl, Psi, PsiLine
from guard.model import UNLIMITED, Known, Reading, Unknown, Why

PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"

V2 = {
    "memory.current": "1000\n",
    "memory.peak": "2000\n",
    "memory.max": "max\n",
    "memory.high": "3000\n",
    "memory.low": "10\n",
    "memory.min": "0\n",
    "memory.swap.current": "5\n",
    "memory.swap.max": "max\n",
    "memory.stat": "anon 1\n",
    "memory.events": "low 0\noom_kill 3\n",
    "memory.events.local": "low 0\noom_kill 1\n",
    "memory.pressure": PRESSURE,
    "io.pressure": PRESSURE,
    "cpu.pressure": PRESSURE,
    "cpu.stat": "usage_usec 9\nnr_throttled 2\n",
}
V1 = {
    "memory.usage_in_bytes": "1000\n",
    "memory.max_usage_in_bytes": "2000\n",
    "memory.limit_in_bytes": "9223372036854771712\n",
    "memory.memsw.usage_in_bytes": "1100\n",
    "memory.memsw.limit_in_bytes": "4096\n",
    "memory.kmem.usage_in_bytes": "30\n",
    "memory.stat": "rss 1\ntotal_rss 2\n",
    "memory.failcnt": "12\n",
    "memory.oom_control": "oom_kill_disable 1\nunder_oom 1\noom_kill 4\n",
    "memory.pressure": PRESSURE,
    "io.pressure": PRESSURE,
    "cpu.pressure": PRESSURE,
    "cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
}
FILES = {CgroupVersion.V1: V1, CgroupVersion.V2: V2}
PSI = Known(Psi(PsiLine(0.0, 0.0, 0.0, 7), None))


def _known(files: Mapping[str, str]) -> dict[str, Reading[bytes]]:
    return {name: Known(text.encode()) for name, text in files.items()}


def _level(version: CgroupVersion, **changed: str) -> MemoryLevel:
    files = {**FILES[version], **{name.replace("__", "."): text for name, text in changed.items()}}
    return memcg.parse_level(version, _known(files))


@pytest.mark.parametrize("version", CgroupVersion)
def test_the_files_to_read_are_the_ones_that_are_parsed(version: CgroupVersion) -> None:
    """FILES names each file once, and just those that a level is made of."""
    names = [file.name for file in memcg.FILES[version]]
    assert sorted(names) == sorted(FILES[version])
    trees = {file.name: file.tree for file in memcg.FILES[version]}
    assert {name: trees[name] for name in ("memory.stat", "io.pressure", "cpu.stat")} == {
        "memory.stat": "memory",
        "io.pressure": "unified",
        "cpu.stat": "cpu",
    }


def test_a_v2_level_is_read() -> None:
    """Every v2 file lands in its field; what only v1 has is UNSUPPORTED."""
    level = _level(CgroupVersion.V2)
    assert (level.current_bytes, level.peak_bytes) == (Known(1000), Known(2000))
    assert (level.max_bytes, level.high_bytes) == (Known(UNLIMITED), Known(3000))
    assert (level.low_bytes, level.min_bytes) == (Known(10), Known(0))
    assert (level.swap_current_bytes, level.swap_max_bytes) == (Known(5), Known(UNLIMITED))
    assert level.stat == Known({"anon": 1})
    assert level.events == Known({"low": 0, "oom_kill": 3})
    assert level.events_local == Known({"low": 0, "oom_kill": 1})
    assert (level.memory_pressure, level.io_pressure, level.cpu_pressure) == (PSI, PSI, PSI)
    assert level.cpu_stat == Known({"usage_usec": 9, "nr_throttled": 2})
    for absent in (level.memsw_current_bytes, level.memsw_limit_bytes, level.failcnt, level.oom_control):
        assert isinstance(absent, Unknown)
        assert absent.why is Why.UNSUPPORTED


def test_a_v1_level_is_read() -> None:
    """Every v1 file lands in the field that means the same; what only v2 has is UNSUPPORTED."""
    level = _level(CgroupVersion.V1)
    assert (level.current_bytes, level.peak_bytes, level.max_bytes) == (Known(1000), Known(2000), Known(UNLIMITED))
    assert (level.memsw_current_bytes, level.memsw_limit_bytes) == (Known(1100), Known(4096))
    assert level.kmem_current_bytes == Known(30)
    assert level.stat == Known({"rss": 1, "total_rss": 2})
    assert level.failcnt == Known(12)
    assert level.oom_control == Known(OomControl(1, 1, 4))
    assert (level.memory_pressure, level.io_pressure, level.cpu_pressure) == (PSI, PSI, PSI)
    absent: tuple[Reading[object], ...] = (level.high_bytes, level.low_bytes, level.min_bytes, level.events)
    for reading in (*absent, level.events_local, level.swap_current_bytes, level.swap_max_bytes):
        assert isinstance(reading, Unknown)
        assert reading.why is Why.UNSUPPORTED


@pytest.mark.parametrize("version", CgroupVersion)
def test_a_level_without_files_is_all_unknown(version: CgroupVersion) -> None:
    """No file: every field is unknown, none is zero."""
    level = memcg.parse_level(version, {})
    for field in fields(level):
        if field.name != "version":
            assert isinstance(getattr(level, field.name), Unknown), field.name


def test_an_unreadable_file_keeps_its_reason() -> None:
    """The reason of the reader is passed on as it is."""
    gone = Unknown(Why.GONE, "/sys/fs/cgroup/x/memory.current", 19)
    assert memcg.parse_level(CgroupVersion.V2, {"memory.current": gone}).current_bytes is gone


def test_kills_are_counted() -> None:
    """v2 counts in memory.events, v1 in memory.oom_control; `oom_kill_disable` is another thing."""
    assert memcg.oom_kills(_level(CgroupVersion.V2)) == Known(3)
    assert memcg.oom_kills(_level(CgroupVersion.V1)) == Known(4)


@pytest.mark.parametrize(
    ("version", "file", "text"),
    [
        (CgroupVersion.V1, "memory__oom_control", "oom_kill_disable 0\nunder_oom 0\n"),
        (CgroupVersion.V2, "memory__events", "low 0\nhigh 0\nmax 0\noom 0\n"),
    ],
)
def test_an_old_kernel_does_not_count_kills(version: CgroupVersion, file: str, text: str) -> None:
    """Before 4.13 there is no oom_kill line: unknown, not zero."""
    kills = memcg.oom_kills(_level(version, **{file: text}))
    assert isinstance(kills, Unknown)
    assert kills.why is Why.UNSUPPORTED


@pytest.mark.parametrize("version", CgroupVersion)
def test_kills_are_as_unknown_as_their_file(version: CgroupVersion) -> None:
    """Without the file the count has the file's reason."""
    kills = memcg.oom_kills(memcg.parse_level(version, {}))
    assert isinstance(kills, Unknown)
    assert kills.why is Why.MISSING


@pytest.mark.parametrize("text", ["", "under_oom 0\n", "oom_kill_disable 0\n", "oom_kill_disable 0\nunder_oom 0"])
def test_an_odd_oom_control_is_malformed(text: str) -> None:
    """Without its two old lines oom_control is not what we know."""
    found = memcg.parse_oom_control(text.encode(), "x")
    assert isinstance(found, Unknown)
    assert found.why is Why.MALFORMED


def test_a_level_can_be_changed_by_field() -> None:
    """A level is a plain value: equal when its readings are."""
    level = _level(CgroupVersion.V2)
    assert level == _level(CgroupVersion.V2)
    assert replace(level, current_bytes=Known(1)) != level
