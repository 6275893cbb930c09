"""A CPU quota for processes that run already.

Only for as long as it is wanted: a group of the CPU controller counts as one task beside those of its parent, so the
lab's groups have none.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.lab.kit.cgroups import PREFIX
from tests.lab.kit.wait import until

TREE: Final = Path("/sys/fs/cgroup/cpu")
_PERIOD_US: Final = 1_000_000  # the longest that the kernel takes; the shortest quota is a millisecond of it
_serial: Final = itertools.count(1)


def can_starve() -> bool:
    """Whether this machine has the CPU controller of cgroup v1."""
    return (TREE / "cpu.cfs_quota_us").exists()


@contextlib.contextmanager
def starved(pids: Sequence[int], ratio: float) -> Iterator[Path]:
    """Let the processes have no more than this share of one core together; gives the group's folder."""
    group = TREE / f"{PREFIX}{os.getpid()}-{next(_serial)}-starved"
    homes = {pid: _home(pid) for pid in pids}
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(ratio * _PERIOD_US)))
        for pid in pids:
            _move(pid, group)
        yield group
    finally:
        for pid, home in homes.items():
            _move(pid, home)
        until(lambda: not (group / "cgroup.procs").read_text(), 120, "the starved group to be empty")
        group.rmdir()


def _home(pid: int) -> Path:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    paths = [path for _, controllers, path in (line.split(":", 2) for line in lines) if "cpu" in controllers.split(",")]
    return TREE / paths[0].lstrip("/")


def _move(pid: int, group: Path) -> None:
    with contextlib.suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(str(pid))
