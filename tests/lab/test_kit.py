"""The kit itself: what it makes goes away by every way out, and apart means apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.lab.kit import loads
from tests.lab.kit.cgroups import MIB, PREFIX, Cgroup, Limits, sweep
from tests.lab.kit.namespaces import Apart, inner_pid, served_pid
from tests.lab.kit.offer import offer
from tests.lab.kit.places import CHECKOUT, PYTHON
from tests.lab.kit.wait import TooLateError, until

pytestmark = [pytest.mark.lab, pytest.mark.skipif(offer().mode is None, reason=offer().reason)]

MAKER = """
import sys, time
from tests.lab.kit import watcher
from tests.lab.kit.cgroups import Cgroup
if sys.argv[1:] == ["watched"]:
    watcher.start()
with Cgroup.make("outer") as outer:
    inner = outer.child("inner")
    inner.spawn(["sleep", "1000"])
    print(inner.trees["memory"], flush=True)
    time.sleep(1000)
"""

LOOK = """
import json, os, sys
import guard
print(json.dumps({
    "uid": os.getuid(), "pid": os.getpid(), "caps": open("/proc/self/status").read().split("CapEff:")[1].split()[0],
    "cgroups": open("/proc/self/cgroup").read(), "siblings": os.listdir(sys.argv[1]), "guard": guard.__file__,
}))
"""


def test_leaving_the_context_kills_and_removes_everything_below() -> None:
    """Nested groups with running processes are gone after the with block, in every tree."""
    with Cgroup.make("outer", Limits(memory_max_bytes=100 * MIB)) as outer:
        inner = outer.child("inner")
        sleeper = inner.spawn(["sleep", "1000"])
        until(lambda: sleeper.pid in outer.pids(), 30, "the sleeper to join")
    assert sleeper.returncode == -signal.SIGKILL
    assert not any(folder.exists() for folder in outer.trees.values())


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_no_group_outlives_its_maker(stop: signal.Signals) -> None:
    """Ctrl-C removes the groups at once; after SIGKILL the next sweep does, with what still runs inside."""
    with subprocess.Popen(
        [PYTHON, "-c", MAKER], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as maker:
        assert maker.stdout
        folder = Path(maker.stdout.readline().decode().strip())
        until((folder / "cgroup.procs").read_text, 30, "the sleeper to join")
        maker.send_signal(stop)
    assert folder.exists() == (stop is signal.SIGKILL)
    sweep()
    assert not folder.exists()


def test_what_a_killed_maker_leaves_behind_is_removed_by_its_watcher() -> None:
    """The demo and the benchmarks have one: after SIGKILL, with nobody to run anything anew, the groups go away."""
    command = [PYTHON, "-c", MAKER, "watched"]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout
        folder = Path(maker.stdout.readline().strip())
        assert folder.is_dir()
        maker.kill()
        until(lambda: not folder.exists(), 30, "the groups to be gone")  # also while nobody has waited for the maker


def test_process_apart_is_another_user_without_rights_in_its_own_namespaces() -> None:
    """The command runs as pid 1 of its PID namespace, without capabilities, and its cgroup is the root it sees."""
    with TemporaryDirectory() as folder, Cgroup.make("apart") as group:
        seen = _look(group, folder, Apart(uid=2000, reachable=(_opened(Path(folder) / "shared"),)))
    assert (seen["uid"], seen["pid"], int(seen["caps"], 16)) == (2000, 1, 0)
    assert PREFIX not in seen["cgroups"]


def test_process_apart_reaches_what_lies_behind_a_closed_folder() -> None:
    """A shared directory below a folder of mode 0700 is reachable, and nothing else of that folder."""
    with TemporaryDirectory() as closed, Cgroup.make("closed") as group:
        shared = _opened(Path(closed) / "shared")
        (Path(closed) / "secret").write_text("x")
        assert Path(closed).stat().st_mode & 0o077 == 0
        seen = _look(group, closed, Apart(uid=2000, reachable=(shared,)))
    assert seen["siblings"] == ["shared"]


def test_directory_that_is_itself_closed_is_refused_with_advice(tmp_path: Path) -> None:
    """A needed directory of mode 0700 cannot be opened up by mounts, and the error says what to do."""
    tmp_path.chmod(0o700)
    with pytest.raises(PermissionError, match="chmod o\\+rx"):
        Apart(uid=2000, reachable=(str(tmp_path),)).wrap(["true"])


def test_small_directory_is_the_commands_own() -> None:
    """A tmpfs of 1 MiB takes no more than that, and what is written there is not on the host's."""
    with Cgroup.make("small") as group:
        apart = Apart(uid=2000, small={"/dev/shm": 1})
        fits, fits_not = (
            group.spawn(["sh", "-c", f"head -c {size}k /dev/zero >/dev/shm/og-lab-small"], apart=apart).wait(30)
            for size in (512, 2048)
        )
    assert (fits, fits_not != 0) == (0, True)
    assert not Path("/dev/shm/og-lab-small").exists()


def test_inner_pid_is_the_command_that_gets_the_signal() -> None:
    """The program unshare stays as a parent that ignores SIGTERM, so the pid of the command itself is told."""
    with Cgroup.make("inner") as group:
        process = group.spawn(["sleep", "1000"], apart=Apart())
        pid = until(lambda: inner_pid(process.pid), 30, "the command to run")
        until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", 30, "the command to be executed")
        os.kill(pid, signal.SIGKILL)
        assert process.wait(30) != 0


def test_the_served_process_is_no_helper_of_what_wraps_the_runner() -> None:
    """A shell's child is a step on the way; only a child of the interpreter is the server."""
    with Cgroup.make("served") as group:
        shell = group.spawn(["/bin/sh", "-c", "sleep 1000; true"])
        until(lambda: inner_pid(shell.pid), 30, "the shell's child")
        assert served_pid(shell.pid) is None
        runner = group.spawn([PYTHON, "-c", "import subprocess; subprocess.run(['sleep', '1000'])"])
        assert until(lambda: served_pid(runner.pid), 30, "the server") == inner_pid(runner.pid)


@pytest.mark.parametrize(
    ("part", "status"), [("leave code=3", 3), ("segfault", -signal.SIGSEGV), ("sleep seconds=0", 0)]
)
def test_load_ends_the_way_its_name_says(part: str, status: int) -> None:
    """Exit statuses of the small loads are what a parent sees."""
    assert status == subprocess.run(loads.command(part), check=False).returncode


def test_waiting_in_vain_says_for_what() -> None:
    """The error of a missed deadline names the condition."""
    with pytest.raises(TooLateError, match="pigs to fly"):
        until(lambda: None, 0, "pigs to fly")


def _opened(folder: Path) -> str:
    folder.mkdir()
    folder.chmod(0o755)
    return str(folder)


def _look(group: Cgroup, folder: str, apart: Apart) -> dict[str, Any]:
    process = group.spawn([sys.executable, "-c", LOOK, folder], apart=apart, output=subprocess.PIPE)
    assert process.stdout
    text = process.stdout.read()
    assert process.wait(30) == 0, text.decode()
    seen: dict[str, Any] = json.loads(text)
    return seen
