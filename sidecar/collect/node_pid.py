"""The pid of a process as the kernel log gives it: in the initial PID namespace.

A handed-over /proc/PID/status cannot tell: it counts from the namespace of the /proc it was opened in. Our own
/proc/self/fdinfo of the pidfd counts from ours (fs/pidfs.c, pidfd_show_fdinfo), so where we are in the initial
namespace, whatever namespaces the process is in, it tells. Elsewhere pids and the kernel log cannot be compared.
"""

from __future__ import annotations

from typing import Final

from guard.kernel.reader import Reader
from guard.model import Known

_INITIAL_INODE: Final = 0xEFFFFFFC  # PROC_PID_INIT_INO, include/linux/proc_ns.h; the same since 3.8


def is_initial(reader: Reader) -> bool:
    """Tell whether we are in the initial PID namespace ourselves."""
    found = reader.identity("/proc/self/ns/pid")
    return isinstance(found, Known) and found.value[1] == _INITIAL_INODE


def of(reader: Reader, pidfd: int | None) -> int | None:
    """Give the pid of a process that is not reaped yet; None where it cannot be known."""
    if pidfd is None or not is_initial(reader):
        return None
    info = reader.read(f"/proc/self/fdinfo/{pidfd}")
    lines = info.value.decode("ascii", "replace").splitlines() if isinstance(info, Known) else []
    pid = next((line[4:].strip() for line in lines if line.startswith("Pid:")), "")
    return int(pid) if pid.isdigit() and pid != "0" else None  # -1: reaped; 0: of no namespace below ours
