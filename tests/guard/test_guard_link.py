"""The guard and the other end of its socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guard.link.protocol import Pressure, Role
from tests.guard.hosts import boxes, environment, only_box
from tests.guard.sidecar_socket import listening

SERVER = """
import guard, sys
{more}
guard.install()
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
"""


@contextmanager
def _server(shared: Path, more: str = "") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", SERVER.format(more=more)],
        env=environment(shared, {"OOMGUARD_NAME": "llm", "OOMGUARD_FENCE": ""}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0


def _ask(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_hello_of_a_server(tmp_path: Path) -> None:
    """The guard says who the process is and hands over its files, a pidfd and the box that the process writes to."""
    with listening(tmp_path) as sidecar, _server(tmp_path) as process:
        taken = sidecar.accept()
        assert (taken.hello.role, taken.hello.name, taken.hello.life.pid) == (Role.GUARD, "llm", process.pid)
        assert f"Pid:\t{process.pid}\n" in taken.read("proc/status")
        assert {"pidfd", "box"} <= set(taken.descriptors)
        assert only_box(tmp_path).life == taken.hello.life


def test_pressure_reaches_the_callbacks(tmp_path: Path) -> None:
    """Every callback gets every notice once, in order of registration, although one of them raises."""
    more = (
        "@guard.on_pressure\ndef broken(notice): raise OSError('broken callback')\n"
        "@guard.on_pressure\ndef relieve(notice): print(notice.level, notice.reason)\n"
        "guard.on_pressure(relieve)"
    )
    with listening(tmp_path) as sidecar, _server(tmp_path, more) as process:
        taken = sidecar.accept()
        taken.send(Pressure("warning", "soon"))
        taken.send(Pressure("none", "over"))
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["warning soon\n", "none over\n"]
        assert _ask(process, "print(guard.status().link, guard.status().trouble_count)") == "connected 2\n"


def test_forked_worker_hands_itself_over(tmp_path: Path) -> None:
    """A forked worker makes a connection of its own, as a child of its parent; the parent's stays."""
    with listening(tmp_path) as sidecar, _server(tmp_path) as process:
        parent = sidecar.accept()
        assert process.stdin is not None
        process.stdin.write("import os; import signal; pid = os.fork() or signal.pause()\n")
        process.stdin.flush()
        child = sidecar.accept()
        assert child.hello.life.pid != process.pid
        assert child.hello.parent_session == parent.hello.life.session
        assert child.hello.life in {box.life for box in boxes(tmp_path)}
        os.kill(child.hello.life.pid, signal.SIGKILL)
        assert child.receive_end()


def test_shared_directory_that_comes_later(tmp_path: Path) -> None:
    """A shared directory that appears after the server's start, with the sidecar in it, gets hand-over and box."""
    shared = tmp_path / "later"
    with _server(shared) as process:
        assert _ask(process, "print(guard.status().box)") == "None\n"
        shared.mkdir()
        with listening(shared) as sidecar:
            taken = sidecar.accept()
            assert "box" in taken.descriptors
            assert only_box(shared).life == taken.hello.life
