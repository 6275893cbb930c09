"""Files of a process, recorded ones and our own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from guard.kernel import identity, procfs
from guard.kernel.reader import Reader
from guard.kernel.values import Membership, ProcIo, ProcStat, ProcStatus, Statm
from guard.model import Known, Unknown, Why
from tests.guard.kernel.conftest import Grow

STATUS = b"""\
Name:\tpy\\\\t\\nhon
Umask:\t0022
State:\tS (sleeping)
Tgid:\t7
Pid:\t7
PPid:\t1
Uid:\t1000\t1001\t1002\t1003
NSpid:\t7\t2
VmRSS:\t     700 kB
RssAnon:\t     400 kB
RssFile:\t     200 kB
RssShmem:\t     100 kB
VmSwap:\t       0 kB
Threads:\t3
"""


def _why(found: object) -> Why:
    assert isinstance(found, Unknown)
    return found.why


def test_status_is_read() -> None:
    """Sizes come in bytes, the name with its escapes undone, the uid is the effective one."""
    expected = ProcStatus(
        name="py\\t\nhon",
        state="S",
        pid=7,
        ppid=1,
        ns_pids=(7, 2),
        uid=1001,
        threads=3,
        vm_rss_bytes=700 << 10,
        rss_anon_bytes=400 << 10,
        rss_file_bytes=200 << 10,
        rss_shmem_bytes=100 << 10,
        vm_swap_bytes=0,
    )
    assert procfs.parse_status(STATUS, "x") == Known(expected)


def test_a_zombie_has_no_sizes() -> None:
    """Lines that are not printed are None, and without NSpid (before 4.1) the pid is the only one."""
    found = procfs.parse_status(b"Name:\tz\nState:\tZ (zombie)\nPid:\t7\nPPid:\t1\nUid:\t0\t0\t0\t0\n", "x")
    assert isinstance(found, Known)
    assert (found.value.vm_rss_bytes, found.value.rss_anon_bytes, found.value.threads) == (None, None, None)
    assert found.value.ns_pids == (7,)


@pytest.mark.parametrize("line", [b"Pid:", b"Uid:", b"State:", b"VmRSS:"])
def test_a_damaged_status_is_malformed(line: bytes) -> None:
    """A needed line that is there but cut makes the status MALFORMED."""
    damaged = b"".join(line + b"\n" if text.startswith(line) else text for text in STATUS.splitlines(keepends=True))
    assert _why(procfs.parse_status(damaged, "x")) is Why.MALFORMED


def test_a_size_in_another_unit_is_malformed() -> None:
    """A unit other than kB is not guessed at."""
    assert _why(procfs.parse_status(STATUS.replace(b"700 kB", b"700 mB"), "x")) is Why.MALFORMED


@pytest.mark.parametrize("comm", ["python", "a b", ") R 1 (", "((", "x)", "caf\u00e9"])
def test_stat_is_read_whatever_the_command_is_called(comm: str) -> None:
    """The command may hold blanks and parentheses."""
    numbers = " ".join(str(number) for number in range(4, 53))
    found = procfs.parse_stat(f"3 ({comm}) R {numbers}\n".encode(), "x")
    assert found == Known(
        ProcStat(
            pid=3,
            comm=comm,
            state="R",
            ppid=4,
            minflt=10,
            majflt=12,
            utime_ticks=14,
            stime_ticks=15,
            num_threads=20,
            starttime_ticks=22,
            delayacct_blkio_ticks=42,
        )
    )


def test_an_old_stat_has_no_block_delay() -> None:
    """A stat of fewer fields (before 2.6.18) has None for the delay of block devices."""
    numbers = " ".join(str(number) for number in range(4, 42))
    found = procfs.parse_stat(f"3 (x) R {numbers}\n".encode(), "x")
    assert isinstance(found, Known)
    assert found.value.delayacct_blkio_ticks is None


@pytest.mark.parametrize("data", [b"", b"3 (x) R 1 2\n", b"3 (x R\n", b"3 x) R\n", b"3 (x) R " + b"1 " * 49])
def test_an_odd_stat_is_malformed(data: bytes) -> None:
    """Too few fields, no parentheses, or no final newline: MALFORMED."""
    assert _why(procfs.parse_stat(data, "x")) is Why.MALFORMED


def test_statm_and_io_are_read() -> None:
    """Both are read whole; cut ones are MALFORMED."""
    io = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"
    assert procfs.parse_statm(b"10 5 3 1 0 4 0\n", "x") == Known(Statm(10, 5, 3))
    assert procfs.parse_io(io, "x") == Known(ProcIo(1, 2, 3, 4, 5, 6))
    assert _why(procfs.parse_statm(b"10 5 3", "x")) is Why.MALFORMED
    assert _why(procfs.parse_statm(b"10\n", "x")) is Why.MALFORMED
    assert _why(procfs.parse_io(io[:50], "x")) is Why.MALFORMED


def test_membership_is_read() -> None:
    """v1 lines name controllers, the v2 line none; a path may hold colons."""
    found = procfs.parse_membership(b"4:memory:/a:b\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/../y\n", "x")
    assert found == Known(
        (
            Membership(4, ("memory",), "/a:b"),
            Membership(2, ("cpu", "cpuacct"), "/"),
            Membership(1, ("name=systemd",), "/x"),
            Membership(0, (), "/../y"),
        )
    )


@pytest.mark.parametrize("data", [b"", b"0::/", b"x::/\n", b"0:/\n", b"0::x\n", b"4:memory:/\nodd\n"])
def test_an_odd_membership_is_malformed(data: bytes) -> None:
    """One odd line makes all of it MALFORMED: the missing line might be the one that counts."""
    assert _why(procfs.parse_membership(data, "x")) is Why.MALFORMED


def test_our_own_files_agree_with_the_system() -> None:
    """What is read of this process is what the standard library says of it."""
    status = procfs.parse_status(Path("/proc/self/status").read_bytes(), "status")
    stat = procfs.parse_stat(Path("/proc/self/stat").read_bytes(), "stat")
    statm = procfs.parse_statm(Path("/proc/self/statm").read_bytes(), "statm")
    io = procfs.parse_io(Path("/proc/self/io").read_bytes(), "io")
    assert isinstance(status, Known)
    assert isinstance(stat, Known)
    assert isinstance(statm, Known)
    assert isinstance(io, Known)
    assert (status.value.pid, status.value.ppid, status.value.uid) == (os.getpid(), os.getppid(), os.geteuid())
    assert (stat.value.pid, stat.value.ppid) == (os.getpid(), os.getppid())
    assert abs(statm.value.resident_pages * os.sysconf("SC_PAGE_SIZE") - (status.value.vm_rss_bytes or 0)) < 16 << 20
    assert io.value.syscr > 0


def test_a_process_is_told_by_boot_and_start() -> None:
    """A child starts later than its parent, within the same boot."""
    reader = Reader()
    mine = identity.start_ticks(reader)
    with subprocess.Popen(["sleep", "60"]) as child:
        its = identity.start_ticks(reader, child.pid)
        child.kill()
    assert isinstance(mine, Known)
    assert isinstance(its, Known)
    assert mine.value <= its.value
    assert identity.boot_id(reader) == Known(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    assert isinstance(identity.start_ticks(reader, child.pid), Unknown)


def test_an_odd_boot_id_is_malformed(grow: Grow) -> None:
    """A boot id of another length is not taken; a missing one is MISSING."""
    assert _why(identity.boot_id(grow({}))) is Why.MISSING
    assert _why(identity.boot_id(grow({"proc/sys/kernel/random/boot_id": "55914ad4\n"}))) is Why.MALFORMED


def test_an_odd_stat_gives_no_start(grow: Grow) -> None:
    """Without a stat that can be read the start is unknown."""
    assert _why(identity.start_ticks(grow({"proc/self/stat": "odd\n"}))) is Why.MALFORMED
