"""A real cgroup with limits, as a context manager.

Rules
    * Everything made here is named `og-lab-PID-...`, and nothing else is ever touched.
    * Leaving the context, by whatever way, kills what is inside (by pid, from cgroup.procs) and removes the groups
      depth first. A group whose maker was itself killed is removed by the next `sweep`.
    * A command joins before it is executed, so all its memory is charged to the group.
    * On a hybrid host a group has a twin of the same name in the v2 tree, because only that one has pressure files.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Final, Self

from tests.lab.kit import offer
from tests.lab.kit.namespaces import Apart
from tests.lab.kit.places import CHECKOUT
from tests.lab.kit.wait import until

PREFIX: Final = "og-lab-"
MIB: Final = 1 << 20
_serial = itertools.count(1)

_JOIN: Final = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ >"$1" || exit 125; shift; n=$((n-1)); done; exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one group; None leaves the kernel's default. `read_iops` throttles reads of the disk under /tmp."""

    memory_max_bytes: int | None = None
    memory_high_bytes: int | None = None  # v2 only
    swap_max_bytes: int | None = 0
    oom_group: bool = False  # v2 only
    read_iops: int | None = None


class NotOfferedError(OSError):
    """The kernel, or the way cgroups are mounted, has no such thing."""


class Cgroup:
    """One group and all below it. Make the topmost with `make`, others with `child`."""

    def __init__(self, trees: Mapping[str, Path], mode: offer.Mode) -> None:
        self.trees: Final = dict(trees)  # "memory"; on a hybrid host also "unified" and, if throttled, "blkio"
        self.mode: Final = mode
        self._processes: list[subprocess.Popen[bytes]] = []
        self._children: list[Cgroup] = []

    @classmethod
    def make(cls, name: str, limits: Limits = Limits()) -> Cgroup:
        """Make a top group. Raises `NotOfferedError` if the machine offers none."""
        offered = offer.offer()
        if offered.mode is None:
            raise NotOfferedError(offered.reason)
        trees = {"memory": offer.ROOT} if offered.mode is offer.Mode.V2 else {"memory": offer.ROOT / "memory"}
        if offered.mode is offer.Mode.HYBRID:
            trees |= {tree: offer.ROOT / tree for tree in ("unified", "blkio") if (offer.ROOT / tree).is_dir()}
        return cls(trees, offered.mode).child(f"{PREFIX}{os.getpid()}-{next(_serial)}-{name}", limits)

    def child(self, name: str, limits: Limits = Limits()) -> Cgroup:
        """Make a group below this one. On v2 this group can then hold no process itself."""
        if self.mode is offer.Mode.V2:
            _enable_controllers(self.trees["memory"])
        group = Cgroup({tree: folder / name for tree, folder in self.trees.items()}, self.mode)
        self._children.append(group)
        try:
            for folder in group.trees.values():
                folder.mkdir()
            group.set(limits)
        except BaseException:
            group.remove()
            raise
        return group

    @property
    def path(self) -> str:
        """Return the cgroup path as /proc/PID/cgroup of a process inside shows it to the initial namespace."""
        root = offer.ROOT if self.mode is offer.Mode.V2 else offer.ROOT / "memory"
        return f"/{self.trees['memory'].relative_to(root)}"

    def file(self, name: str) -> Path:
        """Return the path of a kernel file by its name: pressure files are in the v2 tree on a hybrid host."""
        if "pressure" in name and self.mode is offer.Mode.HYBRID:
            return self.trees["unified"] / name
        return self.trees["memory"] / name

    def set(self, limits: Limits) -> None:
        """Write the limits, also of a living group (a resize). Raises `NotOfferedError` for what this version lacks."""
        for name, value in _limit_files(limits, self.mode):
            folder = self.trees["blkio"] if name.startswith("blkio.") else self.trees["memory"]
            (folder / name).write_text(value)

    def spawn(
        self,
        command: Sequence[str],
        *,
        apart: Apart | None = None,
        env: Mapping[str, str] | None = None,
        output: IO[bytes] | int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a command inside, in the checkout. `env` is added to ours; `output` takes both output streams."""
        joins = [str(folder / "cgroup.procs") for folder in self.trees.values()]
        wrapped = apart.wrap(command) if apart else list(command)
        process = subprocess.Popen(
            ["/bin/sh", "-c", _JOIN, "join", str(len(joins)), *joins, *wrapped],
            cwd=CHECKOUT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            start_new_session=True,  # Ctrl-C on the terminal is for us alone; we then stop it in order
        )
        self._processes.append(process)
        return process

    def pids(self) -> tuple[int, ...]:
        """Return the processes of this group and of all below it."""
        return tuple(sorted({pid for folder in self.trees.values() for pid in _pids_below(folder)}))

    def kill_all(self) -> None:
        """Send SIGKILL until the group and all below it are empty and reaped; AssertionError after 20 s."""
        until(self._killed, 30, f"{self.path} to be empty after SIGKILL")

    def _killed(self) -> bool:
        running = [process for process in self._all_processes() if process.poll() is None]
        for process in running:  # perhaps not joined yet
            process.kill()
        empty = [_killed(folder) for folder in self.trees.values()]
        return not running and all(empty)

    def remove(self) -> None:
        """Kill what is inside, then remove the groups, deepest first. Does nothing when they are gone already."""
        self.kill_all()
        for process in self._all_processes():
            if process.stdout:
                process.stdout.close()
        for folder in self.trees.values():
            _remove_tree(folder)

    def _all_processes(self) -> Iterator[subprocess.Popen[bytes]]:
        yield from self._processes
        for child in self._children:
            yield from child._all_processes()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove everything."""
        self.remove()


def left_behind() -> frozenset[str]:
    """Return the groups of this process that still exist."""
    return frozenset(str(folder) for folder in _lab_groups() if _maker(folder) == os.getpid())


def sweep() -> tuple[str, ...]:
    """Remove groups of the lab whose maker is dead, with what still runs in them, and return their paths."""
    swept = [folder for folder in _lab_groups() if not lives(_maker(folder))]
    for folder in swept:
        until(partial(_killed, folder), 30, f"{folder} to be empty after SIGKILL")
        _remove_tree(folder)
    return tuple(map(str, swept))


def _lab_groups() -> Iterator[Path]:
    for tree in (offer.ROOT, *(offer.ROOT / name for name in ("memory", "unified", "blkio"))):
        yield from tree.glob(f"{PREFIX}[0-9]*-*")


def _maker(folder: Path) -> int:
    return int(folder.name.removeprefix(PREFIX).split("-")[0])


def lives(pid: int) -> bool:
    """Tell whether a process runs; one that ended and was not waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _pids_below(folder: Path) -> Iterator[int]:
    for below, _, files in os.walk(folder):
        if "cgroup.procs" in files:
            with contextlib.suppress(FileNotFoundError, OSError):
                # 0 is a process of another PID namespace that we could not kill anyway
                yield from (int(pid) for pid in Path(below, "cgroup.procs").read_text().split() if pid != "0")


def _killed(folder: Path) -> bool:
    """Send SIGKILL to all below; true when there was nobody left."""
    pids = tuple(_pids_below(folder))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return not pids


def _remove_tree(folder: Path) -> None:
    for below, _, _ in os.walk(folder, topdown=False):
        until(partial(_removed, Path(below)), 30, f"{below} to let itself be removed")


def _removed(folder: Path) -> bool:
    """EBUSY passes: a killed process leaves its group only once it has exited."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _enable_controllers(folder: Path) -> None:
    wanted = {"memory", "io", "cpu", "pids"} & set((folder / "cgroup.controllers").read_text().split())
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(wanted)))


def _limit_files(limits: Limits, mode: offer.Mode) -> Iterator[tuple[str, str]]:
    if mode is offer.Mode.V2:
        yield from _v2_files(limits)
    else:
        yield from _v1_files(limits)


def _v2_files(limits: Limits) -> Iterator[tuple[str, str]]:
    if limits.memory_max_bytes is not None:
        yield "memory.max", str(limits.memory_max_bytes)
    if limits.memory_high_bytes is not None:
        yield "memory.high", str(limits.memory_high_bytes)
    if limits.swap_max_bytes is not None and Path("/proc/swaps").read_text().count("\n") > 1:
        yield "memory.swap.max", str(limits.swap_max_bytes)
    if limits.oom_group:
        yield "memory.oom.group", "1"
    if limits.read_iops is not None:
        yield "io.max", f"{_throttled_disk()} riops={limits.read_iops}"


def _v1_files(limits: Limits) -> Iterator[tuple[str, str]]:
    if limits.memory_high_bytes is not None or limits.oom_group:
        raise NotOfferedError("cgroup v1 has neither memory.high nor memory.oom.group")
    if limits.memory_max_bytes is not None:
        yield "memory.limit_in_bytes", str(limits.memory_max_bytes)
    if limits.read_iops is not None:
        yield "blkio.throttle.read_iops_device", f"{_throttled_disk()} {limits.read_iops}"


def _throttled_disk() -> str:
    disk = offer.offer().read_throttle
    if disk is None:
        raise NotOfferedError("no disk under the temporary directory whose reads can be throttled")
    return disk
