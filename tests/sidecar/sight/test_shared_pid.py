"""Choosing the model among the processes of a shared PID namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guard.kernel.reader import Reader
from guard.model import Unknown
from sidecar.sample import SightKind
from sidecar.sight.levels import close_levels
from sidecar.sight.seen import SeenModel
from sidecar.sight.shared_pid import SharedPidSight, life_without_guard
from tests.sidecar.trees import build

BOOT = "11111111-2222-3333-4444-555555555555"
# Pids that no live process has, so that pidfd_open fails and the tree alone counts.
PAUSE, SERVER, WORKER, PROXY = 4_190_001, 4_190_002, 4_190_003, 4_190_004


def process(comm: str, cgroup: str, start: int, *, command: str | None = None, maps: str = "") -> dict[str, Any]:
    """Files of /proc/PID, whose mounts show its own cgroup at the usual place."""
    return {
        "comm": f"{comm}\n",
        "stat": f"1 ({comm}) S 0 1 1 0 -1 4194560 9 0 8 0 7 6 0 0 20 0 1 0 {start} 100 5 "
        f"18446744073709551615 1 1 0 0 0 0 0 0 65536 0 0 0 17 1 0 0 0 0 0\n",
        "cgroup": f"0::{cgroup}\n",
        "cmdline": (command or f"/usr/bin/{comm}").replace(" ", "\0") + "\0",
        "maps": maps,
        "mountinfo": f"30 25 0:26 {cgroup} /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n",
        "root/sys/fs/cgroup": {"memory.current": "5\n", "memory.max": "100\n", "cgroup.events": "populated 1\n"},
    }


def proc(tmp_path: Path, processes: dict[int, dict[str, Any]]) -> Reader:
    """Make a /proc with these processes beside our own."""
    tree: dict[str, Any] = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "30 25 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
        "proc/sys/kernel/random/boot_id": f"{BOOT}\n",
        "proc/1": process("oomguard", "/", 1),
    }
    for pid, files in processes.items():
        tree[f"proc/{pid}"] = files
    return Reader(str(build(tmp_path, tree)))


POD = {
    PAUSE: process("pause", "/../pause", 10),
    PROXY: process("envoy", "/../proxy", 20),
    SERVER: process("sh", "/../model", 30),
    WORKER: process("python3", "/../model", 40, command="python3 serve.py", maps="7f00 /usr/lib/libtorch_cpu.so\n"),
}


def chosen(reader: Reader, name: str | None = None) -> int:
    """Look, and give the pid of the main process that was chosen."""
    seen = SharedPidSight(reader, "m", name).look()
    assert isinstance(seen, SeenModel)
    assert seen.kind is SightKind.SHARED_PID
    close_levels(seen.levels)
    for file in seen.processes[0].files.values():
        file.close()
    return seen.processes[0].life.pid


def test_container_with_torch_and_in_it_the_oldest_process(tmp_path: Path) -> None:
    """A process with torch mapped shows the container; its first process is the main one."""
    assert chosen(proc(tmp_path, POD)) == SERVER


def test_oldest_process_that_is_no_pause_process(tmp_path: Path) -> None:
    """Without torch anywhere the oldest foreign process is taken, but never the holder of the pod's namespaces."""
    assert chosen(proc(tmp_path, {pid: POD[pid] for pid in (PAUSE, PROXY, SERVER)})) == PROXY


@pytest.mark.parametrize("name", ["python3", "envoy"])
def test_process_by_name(tmp_path: Path, name: str) -> None:
    """A name in the settings wins over any guess."""
    assert chosen(proc(tmp_path, POD), name) == {"python3": WORKER, "envoy": PROXY}[name]


def test_own_container_and_kernel_threads_are_passed_over(tmp_path: Path) -> None:
    """Processes in our own cgroup and threads of the kernel are never the model."""
    kernel = process("kswapd0", "/../x", 5) | {"cmdline": ""}
    found = SharedPidSight(proc(tmp_path, {7: kernel}), "m", None).look()
    assert isinstance(found, Unknown)
    assert "no process of another container" in str(found)


def test_absent_name_is_said(tmp_path: Path) -> None:
    """A name that nobody has is an answer of its own, not a guess at something else."""
    found = SharedPidSight(proc(tmp_path, POD), "m", "vllm").look()
    assert isinstance(found, Unknown)
    assert "vllm" in str(found)


def test_host_namespace_needs_a_name(tmp_path: Path) -> None:
    """In the host's PID namespace nothing is guessed: the oldest process there is the init system."""
    reader = proc(tmp_path, POD | {2: process("kthreadd", "/", 0) | {"cmdline": ""}})
    found = SharedPidSight(reader, "m", None).look()
    assert isinstance(found, Unknown)
    assert "target.process" in str(found)
    assert chosen(reader, "python3") == WORKER


def test_choice_stays_until_the_process_is_gone(tmp_path: Path) -> None:
    """The same object comes back while the main process lives; a pid in other hands is another process."""
    sight = SharedPidSight(proc(tmp_path, POD), "m", "python3")
    first = sight.look()
    assert isinstance(first, SeenModel)
    assert sight.look() is first
    stat = tmp_path / f"proc/{WORKER}/stat"
    stat.write_text(stat.read_text().replace(" 40 100 5 ", " 99 100 5 "))
    second = sight.look()
    assert isinstance(second, SeenModel)
    assert second.processes[0].life != first.processes[0].life
    for seen in (first, second):
        close_levels(seen.levels)
        for file in seen.processes[0].files.values():
            file.close()


def test_identity_is_the_same_after_a_restart_of_the_sidecar() -> None:
    """A process without a session of its own gets one from boot, pid and start, so no end is counted twice."""
    assert life_without_guard(BOOT, 7, 100) == life_without_guard(BOOT, 7, 100)
    assert life_without_guard(BOOT, 7, 100).session != life_without_guard(BOOT, 7, 101).session
