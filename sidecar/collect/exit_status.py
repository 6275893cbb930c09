"""How a process ended: as the kernel tells the holder of a pidfd, or as its parent, the runner, told us."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from typing import Final

from guard.model import Known, Reading, Unknown, Why
from sidecar.sight.seen import SeenProcess
from sidecar.verdict.values import WaitStatus

# struct pidfd_info, first published size of 64 bytes (include/uapi/linux/pidfd.h, kernel 6.13): u64 mask, u64 cgroupid,
# eleven u32 ids, s32 exit_code. PIDFD_INFO_EXIT came with 6.15 and is answered once the process has been reaped.
_INFO: Final = struct.Struct("=QQ11Ii")
_PIDFD_INFO_EXIT: Final = 1 << 3
_PIDFD_GET_INFO: Final = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11  # _IOWR(0xFF, 11, struct pidfd_info)
_WHERE: Final = "PIDFD_GET_INFO"


def from_raw(status: int) -> WaitStatus:
    """Take apart a status as wait(2) gives it."""
    if os.WIFSIGNALED(status):
        return WaitStatus(exit_code=None, signal=os.WTERMSIG(status), core_dumped=os.WCOREDUMP(status))
    return WaitStatus(exit_code=os.WEXITSTATUS(status), signal=None)


def of(process: SeenProcess) -> Reading[WaitStatus]:
    """Say how the process ended, if anybody knows yet. NOT_SAMPLED means that asking again soon may help."""
    if process.wait_status_from_runner is not None:
        return Known(from_raw(process.wait_status_from_runner))
    if process.pidfd is None:
        return Unknown(Why.MISSING, "pidfd")
    return from_pidfd(process.pidfd)


def from_pidfd(pidfd: int) -> Reading[WaitStatus]:
    """Ask the kernel. UNSUPPORTED before 6.15, HIDDEN across PID namespaces, NOT_SAMPLED until the reap."""
    buffer = bytearray(_INFO.size)
    struct.pack_into("=Q", buffer, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError as exc:
        return _refused(exc)
    mask, *_, exit_code = _INFO.unpack(buffer)
    if not mask & _PIDFD_INFO_EXIT:
        return Unknown(Why.NOT_SAMPLED, _WHERE, detail="not reaped yet, or a kernel before 6.15")
    return Known(from_raw(exit_code))


def _refused(exc: OSError) -> Unknown:
    if exc.errno == errno.EREMOTE:
        return Unknown(Why.HIDDEN, _WHERE, exc.errno, "the process is in a PID namespace that is not below ours")
    if exc.errno in {errno.ENOTTY, errno.EINVAL}:
        return Unknown(Why.UNSUPPORTED, _WHERE, exc.errno, "needs kernel 6.15")
    if exc.errno == errno.ESRCH:
        return Unknown(Why.GONE, _WHERE, exc.errno, "reaped before the kernel kept its status")
    return Unknown(Why.FAILED, _WHERE, exc.errno, os.strerror(exc.errno or 0))
