"""Unreclaimable memory and headroom: what counts, what does not, and when it cannot be told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.kernel.headroom import headroom_bytes, hierarchical_limit_bytes, unreclaimable_bytes
from guard.kernel.memcg import parse_level
from guard.kernel.values import CgroupVersion, MemoryLevel
from guard.model import UNLIMITED, Known, Limit, Reading, Unknown, Why

NO_SWAP: Reading[int] = Known(0)
STAT_V2 = {
    "anon": 999,  # not used where the lists are printed
    "kernel": 50,
    "slab_reclaimable": 20,
    "sock": 3,
    "shmem": 999,
    "file": 5000,
    "file_dirty": 4,
    "file_writeback": 2,
    "active_anon": 100,
    "inactive_anon": 200,
    "active_file": 3000,
    "inactive_file": 2000,
    "unevictable": 40,
}
HELD_V2 = 100 + 200 + 40 + (50 - 20) + 3 + 4 + 2
STAT_V1 = {
    "rss": 1,
    "inactive_anon": 1,
    "active_anon": 1,
    "unevictable": 1,
    "dirty": 1,
    "writeback": 1,
    "hierarchical_memory_limit": 2000,
    "total_rss": 999,
    "total_dirty": 4,
    "total_writeback": 2,
    "total_inactive_anon": 200,
    "total_active_anon": 100,
    "total_unevictable": 40,
}
HELD_V1 = 100 + 200 + 40 + 4 + 2 + 50
GONE = Unknown(Why.GONE, "x")


def _table(numbers: dict[str, int]) -> str:
    return "".join(f"{name} {number}\n" for name, number in numbers.items())


def _v2(stat: dict[str, int] | None = None, **limits: object) -> MemoryLevel:
    """Make a level of usage 5000; limits by kernel name without "memory.", `swap_max` for swap.max; None: no file."""
    values: dict[str, object] = {"current": 5000, "max": "max", "high": "max", "swap.max": 0, "swap.current": 0}
    values |= {name.replace("_", "."): value for name, value in limits.items()}
    files = {f"memory.{name}": f"{value}\n" for name, value in values.items() if value is not None}
    files["memory.stat"] = _table(STAT_V2 if stat is None else stat)
    return parse_level(CgroupVersion.V2, {name: Known(text.encode()) for name, text in files.items()})


def _v1(**values: object) -> MemoryLevel:
    known = {"usage_in_bytes": 5000, "limit_in_bytes": 9223372036854771712, "kmem__usage_in_bytes": 50, **values}
    files = {f"memory.{name.replace('__', '.')}": f"{value}\n" for name, value in known.items() if value is not None}
    files["memory.stat"] = _table(STAT_V1)
    return parse_level(CgroupVersion.V1, {name: Known(text.encode()) for name, text in files.items()})


def test_v2_counts_each_page_once() -> None:
    """The anonymous lists, locked pages, kernel memory that stays, sockets, dirty pages; not clean cache."""
    assert unreclaimable_bytes(_v2()) == Known(HELD_V2)


def test_v1_counts_the_levels_below() -> None:
    """The `total_` lines and all of kernel memory, of which v1 does not say what could be reclaimed."""
    assert unreclaimable_bytes(_v1()) == Known(HELD_V1)


def test_locked_anonymous_memory_counts_once() -> None:
    """Anonymous memory that is locked is on the unevictable list alone, though `anon` still counts it."""
    stat = {"anon": 100, "shmem": 0, "active_anon": 0, "inactive_anon": 0, "unevictable": 100}
    assert unreclaimable_bytes(_v2(stat)) == Known(100)


def test_memory_given_back_lazily_does_not_count() -> None:
    """MADV_FREE memory is in `anon` but on a file list, and reclaim drops it."""
    stat = {"anon": 100, "shmem": 0, "active_anon": 10, "inactive_anon": 0, "inactive_file": 90, "unevictable": 0}
    assert unreclaimable_bytes(_v2(stat)) == Known(10)


def test_without_lists_anon_and_shmem_count() -> None:
    """A stat that was cut before its lists still has anon and shmem."""
    assert unreclaimable_bytes(_v2({"anon": 100, "shmem": 5, "file": 7})) == Known(105)


def test_kernel_memory_before_5_18_is_summed() -> None:
    """Without the `kernel` line its parts count."""
    stat = {"active_anon": 0, "inactive_anon": 0, "unevictable": 0, "kernel_stack": 1, "slab_unreclaimable": 2}
    assert unreclaimable_bytes(_v2(stat | {"percpu": 4, "pagetables": 8, "slab_reclaimable": 500})) == Known(15)


def test_huge_pages_count_where_they_are_charged() -> None:
    """The hugetlb line is printed only if huge pages are part of memory.current (memory_hugetlb_accounting)."""
    assert unreclaimable_bytes(_v2({**STAT_V2, "hugetlb": 1000})) == Known(HELD_V2 + 1000)


@pytest.mark.parametrize("kmem", [None, 0])
def test_v1_without_kernel_accounting_counts_none(kmem: int | None) -> None:
    """A v1 kernel that does not account kernel memory has no such file, or zero in it."""
    assert unreclaimable_bytes(_v1(kmem__usage_in_bytes=kmem)) == Known(HELD_V1 - 50)


def test_v1_with_unreadable_kernel_memory_is_unknown() -> None:
    """Kernel memory that exists and cannot be read makes the sum unknown."""
    level = parse_level(
        CgroupVersion.V1, {"memory.stat": Known(_table(STAT_V1).encode()), "memory.kmem.usage_in_bytes": GONE}
    )
    assert unreclaimable_bytes(level) == GONE


@pytest.mark.parametrize("version", CgroupVersion)
def test_without_stat_nothing_is_told(version: CgroupVersion) -> None:
    """Without memory.stat there is no sum and, with a limit, no headroom."""
    files: dict[str, Reading[bytes]] = {
        **{name: Known(b"1000\n") for name in ("memory.max", "memory.high", "memory.limit_in_bytes", "memory.current")},
        "memory.stat": GONE,
    }
    level = parse_level(version, files)
    assert unreclaimable_bytes(level) == GONE
    assert headroom_bytes(level, NO_SWAP) == GONE


@pytest.mark.parametrize("version", CgroupVersion)
def test_a_stat_without_anonymous_lines_is_unknown(version: CgroupVersion) -> None:
    """A stat that holds no word on anonymous memory cannot be summed."""
    found = unreclaimable_bytes(parse_level(version, {"memory.stat": Known(b"file 5\n")}))
    assert isinstance(found, Unknown)
    assert found.why is Why.MISSING


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (_v2(), UNLIMITED),
        (_v2(max=1000), 1000 - HELD_V2),
        (_v2(max=1000, high=900), 900 - HELD_V2),
        (_v2(high=900), 900 - HELD_V2),
        (_v2(max=10), 10 - HELD_V2),
        (_v1(), UNLIMITED),
        (_v1(limit_in_bytes=1000), 1000 - HELD_V1),
        (_v1(memsw__limit_in_bytes=1000, memsw__usage_in_bytes=5007), 1000 - HELD_V1 - 7),
        (_v1(memsw__limit_in_bytes=1000, memsw__usage_in_bytes=4990), 1000 - HELD_V1),
        (_v1(limit_in_bytes=990, memsw__limit_in_bytes=1000, memsw__usage_in_bytes=5000), 990 - HELD_V1),
        (_v1(limit_in_bytes=990, memsw__limit_in_bytes=1000, memsw__usage_in_bytes=5100), 900 - HELD_V1),
    ],
)
def test_headroom_is_the_least_over_the_limits(level: MemoryLevel, expected: Limit) -> None:
    """The limit that leaves least counts; without one headroom is unlimited; over one it is negative."""
    assert headroom_bytes(level, NO_SWAP) == Known(expected)


@pytest.mark.parametrize(
    ("swap_max", "swap_current", "node", "takes"),
    [
        (0, 0, 10_000, 0),
        ("max", 0, 10_000, 300),  # all that is anonymous and not locked
        ("max", 0, 120, 120),
        (150, 50, 10_000, 100),
        (50, 150, 10_000, 0),
        (None, None, 70, 70),  # no swap accounting: the node decides
    ],
)
def test_swap_takes_anonymous_memory(swap_max: object, swap_current: object, node: int, takes: int) -> None:
    """Headroom grows by what swap can take: as much as is swappable, allowed and free."""
    level = _v2(max=1000, swap_max=swap_max, swap_current=swap_current)
    assert headroom_bytes(level, Known(node)) == Known(1000 - HELD_V2 + takes)


def test_swap_does_not_help_against_memsw() -> None:
    """A v1 limit of memory and swap together is not relieved by swap."""
    level = _v1(limit_in_bytes=990, memsw__limit_in_bytes=1000, memsw__usage_in_bytes=5000)
    assert headroom_bytes(level, Known(10_000)) == Known(1000 - HELD_V1)


def test_unknown_swap_matters_only_where_swap_may_be_used() -> None:
    """Free swap of the node is needed only if the level may swap and has a limit."""
    unknown = Unknown(Why.DENIED, "/proc/meminfo")
    assert headroom_bytes(_v2(max=1000, swap_max=0), unknown) == Known(1000 - HELD_V2)
    assert headroom_bytes(_v2(swap_max="max"), unknown) == Known(UNLIMITED)
    assert headroom_bytes(_v2(max=1000, swap_max="max"), unknown) == unknown


@pytest.mark.parametrize("file", ["max", "high"])
def test_an_unknown_limit_makes_headroom_unknown(file: str) -> None:
    """A limit that cannot be read might be the one that binds."""
    found = headroom_bytes(_v2(None, **{"max": 1000, "high": 1000, file: None}), NO_SWAP)
    assert isinstance(found, Unknown)
    assert found.why is Why.MISSING


def test_a_v2_level_without_the_controller_has_no_limit() -> None:
    """The v2 root, or a group without the memory controller, has no memory.max and no memory.current."""
    level = parse_level(CgroupVersion.V2, {"memory.stat": Known(b"anon 5\n")})
    assert headroom_bytes(level, NO_SWAP) == Known(UNLIMITED)


@pytest.mark.parametrize("version", CgroupVersion)
def test_a_level_of_which_nothing_was_read_is_unknown(version: CgroupVersion) -> None:
    """No file at all does not mean no limit."""
    assert isinstance(headroom_bytes(parse_level(version, {}), NO_SWAP), Unknown)


def test_a_hidden_limit_shows_in_the_v1_stat() -> None:
    """With hidden ancestors the least limit above, which v1 prints, bounds the headroom; else it does not."""
    level = _v1()
    assert hierarchical_limit_bytes(level) == Known(2000)
    assert headroom_bytes(level, NO_SWAP, hidden_ancestors=True) == Known(2000 - HELD_V1)
    assert headroom_bytes(level, NO_SWAP) == Known(UNLIMITED)
    assert headroom_bytes(_v2(), NO_SWAP, hidden_ancestors=True) == Known(UNLIMITED)


def test_the_hierarchical_limit_may_be_unknown() -> None:
    """v2 has none, and a stat may lack the line or be unreadable."""
    assert isinstance(hierarchical_limit_bytes(_v2()), Unknown)
    for stat in (Known(b"rss 1\n"), GONE):
        assert isinstance(hierarchical_limit_bytes(parse_level(CgroupVersion.V1, {"memory.stat": stat})), Unknown)


@given(st.fixed_dictionaries({name: st.integers(0, 1 << 50) for name in STAT_V2}), st.sampled_from(sorted(STAT_V2)))
def test_more_memory_never_adds_headroom(stat: dict[str, int], name: str) -> None:
    """A line that grows leaves the sum as it is or makes it larger; reclaimable slab alone makes room."""
    more = {**stat, name: stat[name] + 4096}
    before, after = unreclaimable_bytes(_v2(stat)), unreclaimable_bytes(_v2(more))
    assert isinstance(before, Known)
    assert isinstance(after, Known)
    if name == "slab_reclaimable":
        assert before.value - 4096 <= after.value <= before.value
    else:
        assert after.value >= before.value
