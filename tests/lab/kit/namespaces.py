"""Run a command apart from the rest: another user, its own PID, mount and cgroup namespace, as in a container.

A checkout or an interpreter may lie in a folder that another user cannot enter (a home directory of mode 0700, say).
Inside the private mount namespace such a folder is covered with an empty tmpfs and only the directories that the
command needs are bound back, at the same paths: nothing has to be copied and no mode of the host changes.
Made with unshare(1), setpriv(1) and mount(8) of util-linux, all essential packages of Debian, because a Python
launcher would cost seconds on the emulated machine.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.kit.places import NEEDED, PYTHON

_FIRST_FD = 3
_LAST_FD = 9  # sh knows descriptors of one digit only


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """How far apart. `uid` is also the gid; `reachable` are directories beside the checkout that the command uses.

    `small` maps directories to MiB: each is covered with an empty tmpfs of that size, as a container's /dev/shm is.
    """

    uid: int | None = None
    pid_namespace: bool = True
    cgroup_namespace: bool = True
    reachable: tuple[str, ...] = ()
    small: Mapping[str, int] = field(default_factory=dict)

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` this far apart (it needs root).

        Raises OSError for a needed directory that is missing or itself closed to `uid`.
        """
        unshare = ["unshare", "--mount", "--propagation", "private"]
        if self.pid_namespace:
            unshare += ["--pid", "--fork", "--kill-child", "--mount-proc"]
        if self.cgroup_namespace:
            unshare.append("--cgroup")
        script = ["set -e", *(_own_cgroup_view() if self.cgroup_namespace else ()), *self._uncover()]
        script += [f"mount -t tmpfs -o mode=1777,size={mib}m none {shlex.quote(at)}" for at, mib in self.small.items()]
        drop = "" if self.uid is None else _drop(self.uid)
        script.append(f'exec {drop}"$@"')
        return [*unshare, "--", "/bin/sh", "-c", "\n".join(script), "apart", *command]

    def _uncover(self) -> list[str]:
        if self.uid is None:
            return []
        needed = tuple(str(Path(path).resolve()) for path in (*NEEDED, *self.reachable))
        for path in needed:
            _check_usable(path, self.uid)
        return _uncover(needed, self.uid)


def inner_pid(outer: int) -> int | None:
    """Return the pid, as seen from outside, of the command that `Apart.wrap` started as `outer`, once it runs.

    `unshare --fork` stays as the parent and ignores SIGINT and SIGTERM, so signals must go to its child. It passes an
    exit code on; for a child that died of a signal util-linux 2.38 exits with 1 ("sigprocmask unblock failed").
    """
    try:
        children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def served_pid(runner: int) -> int | None:
    """Return the pid of the server of an `oomguard run` that `Apart.wrap` started as `runner`, once it runs.

    Before that this process is a shell and has other children, mount(8) for one, where the checkout must be uncovered.
    """
    try:
        wrapped = not Path(f"/proc/{runner}/exe").samefile(PYTHON)
    except OSError:
        return None
    return None if wrapped else inner_pid(runner)


def _drop(uid: int) -> str:
    return f"setpriv --reuid {uid} --regid {uid} --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs -- "


def _own_cgroup_view() -> list[str]:
    """Mount the cgroup trees anew: inside a cgroup namespace they show the own group as root, as in a container.

    What was mounted goes first: the kernel refuses a second mount of the same file system on itself (EBUSY).
    """
    root = Path("/sys/fs/cgroup")
    unmount = f"umount --recursive --lazy {root}"
    if (root / "cgroup.controllers").exists():
        return [unmount, f"mount -t cgroup2 none {root}"]
    lines = [unmount, f"mount -t tmpfs -o mode=755 none {root}"]
    if os.path.ismount(root / "memory"):
        lines.append(f"mkdir {root}/memory && mount -t cgroup -o memory none {root}/memory")
    if os.path.ismount(root / "unified"):
        lines.append(f"mkdir {root}/unified && mount -t cgroup2 none {root}/unified")
    return lines


def _uncover(needed: Iterable[str], uid: int) -> list[str]:
    """Return shell lines that make every needed directory reachable for `uid`."""
    closed = {path: cover for path in sorted(set(needed)) if (cover := _closed_ancestor(path, uid))}
    closed = {path: cover for path, cover in closed.items() if not any(_is_below(path, other) for other in closed)}
    if len(closed) > _LAST_FD - _FIRST_FD + 1:
        raise ValueError(f"too many directories behind closed folders: {sorted(closed)}")
    hold, show = [], []
    for descriptor, path in enumerate(closed, _FIRST_FD):
        quoted = shlex.quote(path)
        hold.append(f"exec {descriptor}<{quoted}")
        show.append(f"mkdir -p {quoted}")
        show.append(f"mount --no-canonicalize --bind /proc/self/fd/{descriptor} {quoted}")
        show.append(f"exec {descriptor}<&-")
    covers = [f"mount -t tmpfs -o mode=755 none {shlex.quote(folder)}" for folder in sorted(set(closed.values()))]
    return [*hold, *covers, *show]


def _is_below(path: str, other: str) -> bool:
    return path.startswith(other.rstrip("/") + "/")


def _closed_ancestor(path: str, uid: int) -> str | None:
    for folder in reversed(Path(path).parents):
        if not _may(folder, uid, stat.S_IXOTH):
            return str(folder)
    return None


def _check_usable(path: str, uid: int) -> None:
    if not _may(Path(path), uid, stat.S_IROTH | stat.S_IXOTH):
        raise PermissionError(f"{path} itself is closed to uid {uid}: chmod o+rx it")


def _may(path: Path, uid: int, others: int) -> bool:
    status = path.stat()
    wanted = others << 6 if status.st_uid == uid else others
    return status.st_mode & wanted == wanted
