"""Files below /proc/PID: status, stat, statm, io, cgroup (proc(5) and fs/proc/array.c)."""

from __future__ import annotations

from typing import Final

from guard.kernel.flat import malformed
from guard.kernel.values import Membership, ProcIo, ProcStat, ProcStatus, Statm
from guard.model import Known, Reading

_KIB: Final = 1024
_EFFECTIVE_UID: Final = 1  # "Uid:" prints real, effective, saved, file system
# Indexes after the command in /proc/PID/stat; proc_pid_stat(5) counts from 1 and has the state as field 3.
_PPID, _MINFLT, _MAJFLT, _UTIME, _STIME, _THREADS, _START, _BLKIO = 1, 7, 9, 11, 12, 17, 19, 39
_IO_NAMES: Final = (b"rchar", b"wchar", b"syscr", b"syscw", b"read_bytes", b"write_bytes")


def parse_status(data: bytes, where: str) -> Reading[ProcStatus]:
    """Parse /proc/PID/status. MALFORMED without name, state, pid, ppid or uid; sizes are None where not printed."""
    lines = dict([line.partition(b":")[::2] for line in data.split(b"\n")[:-1]])
    try:
        pid = int(lines[b"Pid"])
        return Known(
            ProcStatus(
                name=_unescape_comm(lines[b"Name"]),
                state=lines[b"State"].split()[0].decode("ascii"),
                pid=pid,
                ppid=int(lines[b"PPid"]),
                ns_pids=tuple(map(int, lines[b"NSpid"].split())) if b"NSpid" in lines else (pid,),  # 4.1+
                uid=int(lines[b"Uid"].split()[_EFFECTIVE_UID]),
                threads=int(lines[b"Threads"]) if b"Threads" in lines else None,
                vm_rss_bytes=_kib(lines, b"VmRSS"),
                rss_anon_bytes=_kib(lines, b"RssAnon"),  # the three Rss lines: 4.5+
                rss_file_bytes=_kib(lines, b"RssFile"),
                rss_shmem_bytes=_kib(lines, b"RssShmem"),
                vm_swap_bytes=_kib(lines, b"VmSwap"),
            )
        )
    except (KeyError, ValueError, IndexError):
        return malformed(data, where)


def _kib(lines: dict[bytes, bytes], name: bytes) -> int | None:
    text = lines.get(name)
    if text is None:
        return None  # kernel threads and zombies have no memory lines
    number, unit = text.split()
    if unit != b"kB":
        raise ValueError(unit)
    return int(number) * _KIB


def _unescape_comm(text: bytes) -> str:
    r"""Undo the kernel's escapes of a command name in status: `\n` and `\\` (fs/proc/array.c, proc_task_name)."""
    plain = text.strip(b"\t").replace(b"\\\\", b"\0").replace(b"\\n", b"\n").replace(b"\0", b"\\")
    return plain.decode("utf-8", "replace")


def parse_stat(data: bytes, where: str) -> Reading[ProcStat]:
    """Parse /proc/PID/stat. The command may hold blanks and parentheses: it ends at the last closing one."""
    head, close, tail = data.rpartition(b")")
    pid, opening, comm = head.partition(b" (")
    words = tail.split()
    try:
        if not close or not opening or data[-1:] != b"\n":
            return malformed(data, where)
        return Known(
            ProcStat(
                pid=int(pid),
                comm=comm.decode("utf-8", "replace"),
                state=words[0].decode("ascii"),
                ppid=int(words[_PPID]),
                minflt=int(words[_MINFLT]),
                majflt=int(words[_MAJFLT]),
                utime_ticks=int(words[_UTIME]),
                stime_ticks=int(words[_STIME]),
                num_threads=int(words[_THREADS]),
                starttime_ticks=int(words[_START]),
                delayacct_blkio_ticks=int(words[_BLKIO]) if len(words) > _BLKIO else None,
            )
        )
    except (ValueError, IndexError):
        return malformed(data, where)


def parse_statm(data: bytes, where: str) -> Reading[Statm]:
    """Parse /proc/PID/statm."""
    words = data.split()
    try:
        if data[-1:] != b"\n":
            return malformed(data, where)
        return Known(Statm(int(words[0]), int(words[1]), int(words[2])))
    except (ValueError, IndexError):
        return malformed(data, where)


def parse_io(data: bytes, where: str) -> Reading[ProcIo]:
    """Parse /proc/PID/io."""
    lines = dict([line.partition(b": ")[::2] for line in data.split(b"\n")[:-1]])
    try:
        return Known(ProcIo(*[int(lines[name]) for name in _IO_NAMES]))
    except (KeyError, ValueError):
        return malformed(data, where)


def parse_membership(data: bytes, where: str) -> Reading[tuple[Membership, ...]]:
    """Parse /proc/PID/cgroup, one `id:controllers:path` a line. MALFORMED without a line or with one of another shape.

    Paths keep what the kernel wrote, undecodable bytes as surrogates (os.fsdecode).
    """
    found = []
    for line in data.split(b"\n")[:-1]:
        number, _, rest = line.partition(b":")
        controllers, colon, path = rest.partition(b":")
        if not colon or not number.isdigit() or not path.startswith(b"/"):
            return malformed(data, where)
        names = tuple(name for name in controllers.decode("utf-8", "surrogateescape").split(",") if name)
        found.append(Membership(int(number[:9]), names, path.decode("utf-8", "surrogateescape")))
    return Known(tuple(found)) if found else malformed(data, where)
