"""Starting a child that cannot end before its parent has opened its kernel files.

A server may fail within a millisecond of its start. Its files in /proc and its pidfd are opened while it waits between
fork and exec: descriptors survive what they are about, names and pids do not. The wait is some ten system calls long.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final, NoReturn

_FILES: Final = ("status", "stat", "statm", "io")
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC
_NOT_STARTED: Final = 127


def start(become: Callable[[], NoReturn], held: dict[str, int] | None) -> int:
    """Fork, and have the child become the command; give the pid once the command runs.

    Args:
        become: executes the command, in the child.
        held: takes what is opened of the child, by the names of a hello's descriptors; None: nothing is opened.

    Raises:
        OSError: the command cannot be executed.
    """
    gate_read, gate_write = os.pipe()
    report_read, report_write = os.pipe()  # close-on-exec: end of file says that the command runs
    child = os.fork()
    if child == 0:
        os.close(gate_write)
        _wait_and_become(gate_read, report_write, become)
    os.close(gate_read)
    os.close(report_write)
    with os.fdopen(report_read, "rb") as report:
        try:
            if held is not None:
                _hold(child, held)
        finally:
            os.close(gate_write)
        failed = report.read()
    if failed:
        os.waitpid(child, 0)
        raise OSError(int(failed), os.strerror(int(failed)))
    return child


def _wait_and_become(gate: int, report: int, become: Callable[[], NoReturn]) -> NoReturn:
    """In the child: wait until the parent lets go (or is gone), and become; report why that fails."""
    try:
        os.read(gate, 1)
        become()
    except OSError as error:
        os.write(report, str(error.errno).encode())
    finally:
        os._exit(_NOT_STARTED)


def _hold(child: int, held: dict[str, int]) -> None:
    """Open what there is; what is denied or not known to this kernel is left out."""
    for name in _FILES:
        with contextlib.suppress(OSError):
            held[f"proc/{name}"] = os.open(f"/proc/{child}/{name}", _FLAGS)
    with contextlib.suppress(OSError):  # pidfd_open needs 5.3; a container's seccomp profile may deny it
        held["pidfd"] = os.pidfd_open(child)
