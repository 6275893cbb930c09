"""Whatever bytes a kernel file holds, a parser answers with a value or a reason; what is printed is read back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.kernel import kmsg, memcg, meminfo, mountinfo, procfs, psi, vmstat
from guard.kernel.flat import parse_limit, parse_number, parse_table
from guard.kernel.locate import locate, scope_of
from guard.kernel.reader import Reader
from guard.kernel.values import CgroupVersion, LevelScope, Membership, Mount, Psi, PsiLine
from guard.model import UNLIMITED, Known, Reading, Unknown

PARSERS: Final[list[Callable[[bytes, str], Reading[object]]]] = [
    parse_number,
    parse_limit,
    parse_table,
    psi.parse,
    meminfo.parse,
    vmstat.parse,
    procfs.parse_status,
    procfs.parse_stat,
    procfs.parse_statm,
    procfs.parse_io,
    procfs.parse_membership,
    mountinfo.parse,
    kmsg.parse_record,
    memcg.parse_oom_control,
]
RECORDED: Final = [
    path.read_bytes()
    for path in sorted((Path(__file__).parents[2] / "recorded/k6.12-v2-limited").rglob("*"))
    if path.is_file()
]
NAMES: Final = st.text(st.characters(exclude_characters="/\n\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
NUMBERS: Final = st.integers(0, (1 << 64) - 1)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw a recorded file, cut, with bytes overwritten."""
    data = bytearray(draw(st.sampled_from(RECORDED)))
    del data[draw(st.integers(0, len(data))) :]
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: f"{parse.__module__}.{parse.__name__}")
@given(data=st.one_of(st.binary(max_size=300), damaged()))
def test_no_parser_raises(parse: Callable[[bytes, str], Reading[object]], data: bytes) -> None:
    """Any bytes give a value or a reason that names the file."""
    found = parse(data, "file")
    assert isinstance(found, Known) or found.where == "file"


@given(st.dictionaries(st.sampled_from([f.name for files in memcg.FILES.values() for f in files]), damaged()))
def test_a_level_of_any_bytes_has_an_answer_to_every_question(files: dict[str, bytes]) -> None:
    """Kills, unreclaimable memory and headroom of a damaged level are known or unknown, never an exception."""
    readings: dict[str, Reading[bytes]] = {name: Known(data) for name, data in files.items()}
    for version in CgroupVersion:
        level = memcg.parse_level(version, readings)
        for answer in (
            memcg.oom_kills(level),
            memcg.unreclaimable_bytes(level),
            memcg.headroom_bytes(level, Known(0), hidden_ancestors=True),
        ):
            assert isinstance(answer, Known | Unknown)


@given(NUMBERS)
def test_numbers_round_trip(number: int) -> None:
    """A number that is printed is read back; as a limit too unless it means none."""
    data = b"%d\n" % number
    assert parse_number(data, "x") == Known(number)
    assert parse_limit(data, "x") == Known(number if number < (1 << 63) - 65536 else UNLIMITED)


@given(st.dictionaries(st.from_regex(r"[a-z_()0-9.]{1,20}", fullmatch=True), NUMBERS, min_size=1))
def test_tables_round_trip(table: dict[str, int]) -> None:
    """A table that is printed is read back."""
    data = "".join(f"{name} {number}\n" for name, number in table.items()).encode()
    assert parse_table(data, "x") == Known(table)


HUNDREDTHS: Final = st.integers(0, 10_000).map(lambda number: number / 100)
LINES: Final = st.builds(PsiLine, HUNDREDTHS, HUNDREDTHS, HUNDREDTHS, NUMBERS)


def _print(kind: str, line: PsiLine | None) -> str:
    if line is None:
        return ""
    return f"{kind} avg10={line.avg10:.2f} avg60={line.avg60:.2f} avg300={line.avg300:.2f} total={line.total_us}\n"


@given(LINES, st.none() | LINES)
def test_pressure_round_trips(some: PsiLine, full: PsiLine | None) -> None:
    """Pressure as the kernel prints it is read back."""
    data = (_print("some", some) + _print("full", full)).encode()
    assert psi.parse(data, "x") == Known(Psi(some, full))


PATHS: Final = st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names))


@given(st.lists(st.tuples(st.integers(1, 99), st.sampled_from([("memory",), ("cpu", "cpuacct")]), PATHS), min_size=1))
def test_membership_round_trips(lines: list[tuple[int, tuple[str, ...], str]]) -> None:
    """Membership as the kernel prints it is read back, whatever the groups are called."""
    data = "".join(f"{number}:{','.join(names)}:{path}\n" for number, names, path in lines)
    expected = tuple(Membership(number, names, path) for number, names, path in lines)
    assert procfs.parse_membership(data.encode(), "x") == Known(expected)


def _escape(text: str) -> str:
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\#" else char for char in text)


@given(PATHS, PATHS, st.lists(st.sampled_from(["shared:1", "master:2", "unbindable"])))
def test_mounts_round_trip(root: str, point: str, optional: list[str]) -> None:
    """A mount as the kernel prints it is read back, with any number of optional fields."""
    words = ["1", "2", "0:3", _escape(root), _escape(point), "rw", *optional, "-", "cgroup2", "none", "rw,nsdelegate"]
    expected = Mount(root, point, "cgroup2", ("rw",), ("rw", "nsdelegate"))
    assert mountinfo.parse((" ".join(words) + "\n").encode(), "x") == Known((expected,))


@given(st.text(max_size=60))
def test_every_path_has_a_scope(path: str) -> None:
    """Any path stands for something."""
    assert scope_of(path) in LevelScope


STEPS: Final = st.sampled_from(["..", ".", "a", "..", "b c", "\\134", ""])
WAYS: Final = st.lists(STEPS, max_size=5).map(lambda names: "/" + "/".join(names))


@given(path=WAYS, root=WAYS, point=WAYS)
def test_locate_never_leaves_the_root(path: str, root: str, point: str) -> None:
    """Membership and mounts of a foreign tree, whatever they say, lead to no directory outside of it."""
    with tempfile.TemporaryDirectory() as outer:
        base = Path(outer, "tree")
        for inside in ("a/b c", "b c/a"):
            (base / inside).mkdir(parents=True)
        for outside in ("a/b c", "b c/a"):
            (Path(outer) / outside).mkdir(parents=True)
        (base / "proc/self").mkdir(parents=True)
        (base / "proc/self/cgroup").write_text(f"0::{path}\n")
        (base / "proc/self/mountinfo").write_text(f"1 2 0:3 {_escape(root)} {_escape(point)} rw - cgroup2 none rw\n")
        reader = Reader(str(base))
        chain = locate(reader)
        for level in chain.value.levels if isinstance(chain, Known) else ():
            found = reader.identity(level.memory_dir)
            assert isinstance(found, Known)
            inodes = {(there.stat().st_dev, there.stat().st_ino) for there in (base, *base.rglob("*"))}
            assert found.value in inodes
