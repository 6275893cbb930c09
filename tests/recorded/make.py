"""Record trees of the kernel that this runs on: `python -m tests.recorded.make DESTINATION`, as root.

Each scene puts a real load into real cgroups, waits for what it is about, and records the load's process. The names
say kernel, cgroup mode and scene. In the lab's machine for pure v2:

    python -m tests.lab.vm -- .venv/bin/python -m tests.recorded.make /run/lab/trees
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from guard.kernel.psi import parse as parse_pressure
from guard.kernel.reader import Reader
from guard.kernel.tree import record
from guard.model import Known
from tests.lab.kit.cgroups import MIB, Cgroup, Limits
from tests.lab.kit.loads import command
from tests.lab.kit.namespaces import Apart
from tests.lab.kit.wait import until

LIMIT: Final = 48 * MIB


def main(destination: Path) -> None:
    """Play every scene and record it."""
    for scene in (limited, nested, thrash, child_killed, namespaced):
        name = scene.__name__.replace("_", "-")
        with Cgroup.make(name, Limits(memory_max_bytes=LIMIT)) as group:
            kernel = ".".join(platform.release().split(".")[:2])
            folder = destination / f"k{kernel}-{group.mode.name.lower()}-{name}"
            scene(group, partial(_record, folder))
        sys.stdout.write(f"{folder}\n")


def _record(folder: Path, pid: int) -> None:
    record(Reader(), str(folder), pid, command="python -m tests.recorded.make")


def limited(group: Cgroup, save: Callable[[int], None]) -> None:
    """Anonymous memory below the limit."""
    load = group.spawn(command("grow rate=200 upto=24"))
    until(lambda: _usage(group) > 24 * MIB, 60, "24 MiB")
    save(load.pid)


def nested(group: Cgroup, save: Callable[[int], None]) -> None:
    """A leaf without a limit in a parent with one, and a sibling that uses some of it."""
    leaf, sibling = group.child("leaf", Limits()), group.child("sibling", Limits())
    sibling.spawn(command("grow rate=200 upto=8"))
    load = leaf.spawn(command("grow rate=200 upto=12"))
    until(lambda: _usage(leaf) > 12 * MIB and _usage(sibling) > 8 * MIB, 60, "20 MiB")
    save(load.pid)


def thrash(group: Cgroup, save: Callable[[int], None]) -> None:
    """A mapped file larger than the limit, read at random: at the limit, under pressure, nothing to fear."""
    with tempfile.TemporaryDirectory() as folder:
        load = group.spawn(command(f"thrash path={folder}/weights threads=2 size=96"))
        until(lambda: _stalled_us(group) > 500_000, 120, "half a second of memory stall")
        save(load.pid)
        group.kill_all()


def child_killed(group: Cgroup, save: Callable[[int], None]) -> None:
    """The kernel killed a child at the limit; the parent lives on."""
    load = group.spawn(command("child rate=200"), output=subprocess.PIPE)
    assert load.stdout is not None
    assert any(b"ended with -9" in line for line in load.stdout)
    save(load.pid)


def namespaced(group: Cgroup, save: Callable[[int], None]) -> None:
    """The view from inside a cgroup namespace, as in a container: ancestors exist and are hidden."""
    del save
    kernel = ".".join(platform.release().split(".")[:2])
    folder = Path(sys.argv[1]) / f"k{kernel}-{group.mode.name.lower()}-namespaced"
    inside = group.spawn([sys.executable, "-m", "tests.recorded.make", str(folder), "self"], apart=Apart())
    assert inside.wait() == 0


def _usage(group: Cgroup) -> int:
    name = "memory.current" if group.file("memory.current").exists() else "memory.usage_in_bytes"
    return int(group.file(name).read_text())


def _stalled_us(group: Cgroup) -> int:
    path = group.file("memory.pressure")
    pressure = parse_pressure(path.read_bytes(), str(path))
    assert isinstance(pressure, Known)
    return pressure.value.some.total_us


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[2])
    if sys.argv[2:] == ["self"]:
        record(Reader(), sys.argv[1], command="python -m tests.recorded.make")
    else:
        main(Path(sys.argv[1]))
