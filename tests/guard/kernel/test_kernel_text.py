"""Numbers, limits, tables, pressure, meminfo, vmstat, mounts and kernel log records."""

from __future__ import annotations

import pytest

from guard.kernel import kmsg, meminfo, mountinfo, psi, vmstat
from guard.kernel.flat import parse_limit, parse_number, parse_table
from guard.kernel.values import KmsgRecord, Mount, Psi, PsiLine
from guard.model import UNLIMITED, Known, Unknown, Why


def _why(found: object) -> Why:
    assert isinstance(found, Unknown)
    return found.why


@pytest.mark.parametrize(
    "text",
    [
        "max",
        "-1",
        "9223372036854771712",  # 4 KiB pages
        "9223372036854759424",  # 16 KiB
        "9223372036854710272",  # 64 KiB
        "9223372036854775807",  # before 3.19
        "18446744073709551615",
    ],
)
def test_every_spelling_of_no_limit_is_unlimited(text: str) -> None:
    """No limit is UNLIMITED however the kernel writes it."""
    assert parse_limit(f"{text}\n".encode(), "x") == Known(UNLIMITED)


@pytest.mark.parametrize("number", [0, 4096, 268435456, 1 << 60])
def test_a_limit_is_a_number(number: int) -> None:
    """A limit that is one stays a number, zero too."""
    assert parse_limit(f"{number}\n".encode(), "x") == Known(number)


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"max", b"52428", b"5 6\n", b"-2\n", b"1_0\n", b"+1\n", b"9" * 30 + b"\n"]
)
def test_a_cut_or_odd_number_is_malformed(data: bytes) -> None:
    """A number without its newline may lack digits, so it is not used; other shapes are not either."""
    assert _why(parse_limit(data, "x")) is Why.MALFORMED
    assert _why(parse_number(data, "x")) is Why.MALFORMED


def test_a_malformed_value_says_what_was_read() -> None:
    """The reason shows the start of the data, and whether it looks cut."""
    assert str(parse_number(b"", "memory.max")) == "memory.max: malformed (empty)"
    assert str(parse_number(b"12", "memory.max")) == "memory.max: malformed (no final newline: cut short? b'12')"


def test_a_table_keeps_the_kernels_names() -> None:
    """Lines of name and number become a mapping."""
    assert parse_table(b"anon 4096\nfile 0\n", "x") == Known({"anon": 4096, "file": 0})


def test_a_cut_last_line_is_left_out() -> None:
    """A table that was cut keeps its whole lines alone: the last number may lack digits."""
    assert parse_table(b"anon 4096\nfile 81", "x") == Known({"anon": 4096})


def test_lines_of_another_shape_are_left_out() -> None:
    """A new kind of line does not hide the others."""
    assert parse_table(b"anon 4096\nodd\nnew 1 2\nneg -3\nfile 8192\n", "x") == Known({"anon": 4096, "file": 8192})


@pytest.mark.parametrize("data", [b"", b"\n", b"odd\n", b"anon 40", b"\xff\xfe\n"])
def test_a_table_without_a_line_is_malformed(data: bytes) -> None:
    """Nothing to read is MALFORMED, not an empty table."""
    assert _why(parse_table(data, "x")) is Why.MALFORMED


SOME = b"some avg10=1.50 avg60=0.75 avg300=0.10 total=123456\n"
FULL = b"full avg10=0.50 avg60=0.25 avg300=0.00 total=98765\n"
SOME_LINE = PsiLine(1.5, 0.75, 0.1, 123456)


def test_pressure_has_both_lines() -> None:
    """`some` and `full` are read."""
    assert psi.parse(SOME + FULL, "x") == Known(Psi(SOME_LINE, PsiLine(0.5, 0.25, 0.0, 98765)))


def test_pressure_without_full_has_none() -> None:
    """A kernel before 5.13 prints no `full` for the CPU: None, not zero."""
    assert psi.parse(SOME, "x") == Known(Psi(SOME_LINE, None))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        FULL,  # irq.pressure
        SOME[:-1],
        SOME[:30] + b"\n",
        SOME + FULL[:30] + b"\n",
        SOME.replace(b"1.50", b"nan"),
        SOME.replace(b"1.50", b"x"),
        SOME.replace(b"123456", b"-1"),
        SOME.replace(b"avg60", b"avg61"),
        b"aggr 316016073\nsome 0.00 0.03 0.05\nfull 0.00 0.03 0.05\n",  # before it was merged: no totals
    ],
)
def test_odd_pressure_is_malformed(data: bytes) -> None:
    """Pressure without a whole `some` line, or with a damaged line, is MALFORMED."""
    assert _why(psi.parse(data, "x")) is Why.MALFORMED


def test_pressure_tolerates_more() -> None:
    """Lines and words that a later kernel may add are ignored."""
    assert psi.parse(SOME[:-1] + b" avg900=0.00\nnew line\n", "x") == Known(Psi(SOME_LINE, None))


def test_meminfo_is_in_bytes() -> None:
    """Sizes become bytes, counts stay counts."""
    data = b"MemTotal:       24684084 kB\nHugePages_Total:       3\nActive(anon):  8 kB\nodd line\n"
    expected = {"MemTotal": 24684084 * 1024, "HugePages_Total": 3, "Active(anon)": 8192}
    assert meminfo.parse(data, "x") == Known(expected)


def test_a_cut_meminfo_keeps_whole_lines() -> None:
    """The last line of a cut file is not used; nothing left is MALFORMED."""
    assert meminfo.parse(b"MemTotal: 8 kB\nMemFree: 4", "x") == Known({"MemTotal": 8192})
    assert _why(meminfo.parse(b"MemTotal: 8 kB", "x")) is Why.MALFORMED


def test_free_swap_is_taken_from_meminfo() -> None:
    """Free swap is a number, MISSING without the line, and as unknown as meminfo is."""
    gone = Unknown(Why.GONE, "x")
    assert meminfo.swap_free_bytes(Known({"SwapFree": 0})) == Known(0)
    assert _why(meminfo.swap_free_bytes(Known({"MemTotal": 1}))) is Why.MISSING
    assert meminfo.swap_free_bytes(gone) is gone


def test_vmstat_is_a_table() -> None:
    """The file vmstat has the shape of a table."""
    assert vmstat.parse(b"nr_free_pages 12\noom_kill 6\n", "x") == Known({"nr_free_pages": 12, "oom_kill": 6})


MOUNTS = b"""\
31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 master:1 - tmpfs tmpfs rw,mode=755
35 31 0:32 /a\\040b /mnt/x\\011y\\134z rw - cgroup cgroup rw,memory
not a mount
36 31 0:33 / /dash - - ext4 - rw
"""


def test_mounts_are_read_with_optional_fields_and_escapes() -> None:
    """Optional fields are skipped, octal escapes undone, odd lines left out, a bare dash is allowed in the tail."""
    assert mountinfo.parse(MOUNTS, "x") == Known(
        (
            Mount("/", "/sys/fs/cgroup", "tmpfs", ("rw", "relatime"), ("rw", "mode=755")),
            Mount("/a b", "/mnt/x\ty\\z", "cgroup", ("rw",), ("rw", "memory")),
            Mount("/", "/dash", "ext4", ("-",), ("rw",)),
        )
    )


def test_no_mount_is_malformed() -> None:
    """A mountinfo without a line that can be read is MALFORMED."""
    assert _why(mountinfo.parse(b"31 23 0:28 / /sys", "x")) is Why.MALFORMED
    assert _why(mountinfo.parse(b"1 2 0:1 / /sys rw - tmpfs\n", "x")) is Why.MALFORMED


def _mount(point: str, fs_type: str) -> Mount:
    return Mount("/", point, fs_type, (), ())


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ((_mount("/proc", "proc"),), False),
        ((_mount("/proc", "proc"), _mount("/proc/meminfo", "fuse.lxcfs")), True),
        ((_mount("/proc/meminfo", "fuse.lxcfs"), _mount("/proc", "proc"), _mount("/proc/meminfo", "proc")), False),
        ((_mount("/", "ext4"), _mount("/proc/mem", "fuse.lxcfs")), False),
        ((_mount("/", "fuse.lxcfs"),), True),
        ((), False),
    ],
)
def test_lxcfs_is_seen_in_the_mounts(mounts: tuple[Mount, ...], expected: bool) -> None:  # noqa: FBT001 - a case of a table
    """LXCFS serves a file if the last mount on its longest mounted prefix is of that type."""
    assert mountinfo.is_lxcfs(mounts, "/proc/meminfo") is expected


def test_a_kernel_record_is_read() -> None:
    """Priority is split into level and facility, continuation lines become fields, escapes are undone."""
    data = b"30,339,5140900,-;NET: caf\\xc3\\xa9 \\x5c\\x0a end\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n odd\n"
    assert kmsg.parse_record(data, "/dev/kmsg") == Known(
        KmsgRecord(6, 3, 339, 5140900, "NET: caf\u00e9 \\\n end", {"SUBSYSTEM": "acpi", "DEVICE": "+acpi:PNP0A03:00"})
    )


def test_a_kernel_record_may_have_more_header() -> None:
    """Header fields that a kernel adds (caller=T12) are ignored; a semicolon in the text stays."""
    found = kmsg.parse_record(b"4,1,2,-,caller=T12;a; b\n", "x")
    assert found == Known(KmsgRecord(4, 0, 1, 2, "a; b"))


@pytest.mark.parametrize("data", [b"", b"text\n", b"4,1;x\n", b"4,x,2,-;x\n", b"4,1,-2,-;x\n"])
def test_an_odd_kernel_record_is_malformed(data: bytes) -> None:
    """A record without its header is MALFORMED."""
    assert _why(kmsg.parse_record(data, "x")) is Why.MALFORMED
