"""Listening to systemd's memory pressure protocol: PSI file, FIFO, socket, and none of it."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

from guard import fence
from guard.link.protocol import Pressure
from guard.pressure_watch import PressureWatch, WatchPlan, open_watch, plan
from guard.relief import Relief
from tests.lab.kit.wait import until

OWN = "/run/oomguard/pressure.sock"


@pytest.fixture
def changes() -> Iterator[tuple[Relief, Queue[Pressure]]]:
    """Give a relief and what it hears of the level."""
    heard: Queue[Pressure] = Queue()
    relief = Relief(lambda _effect: None)
    relief.add(heard.put, "all", None, 0.0)
    yield relief, heard
    relief.calm()
    until(lambda: not _threads("oomguard-relief"), 30, "the relief thread to end")


def _threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def _descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_what_the_environment_asks_for() -> None:
    """The path and the decoded bytes; nothing for no path, the off switch, or the sidecar's own socket."""
    write = base64.b64encode(b"some 150000 2000000\0").decode()
    asked = {"MEMORY_PRESSURE_WATCH": "/sys/fs/cgroup/x/memory.pressure", "MEMORY_PRESSURE_WRITE": write}
    assert plan(asked, OWN) == WatchPlan("/sys/fs/cgroup/x/memory.pressure", b"some 150000 2000000\0")
    for path in ("", "/dev/null", OWN, "/run/oomguard//pressure.sock"):
        assert plan({**asked, "MEMORY_PRESSURE_WATCH": path}, OWN) is None
    assert plan({}, OWN) is None


@pytest.mark.parametrize(
    "wrong", [{"MEMORY_PRESSURE_WATCH": "relative"}, {"MEMORY_PRESSURE_WATCH": "/x", "MEMORY_PRESSURE_WRITE": "%"}]
)
def test_what_is_wrong_is_said_and_costs_nothing(wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variable is a trouble in `status()`, never an error of the host."""
    monkeypatch.setenv("OOMGUARD_FENCE", "")
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    before = fence.troubles.count
    assert open_watch(Relief(lambda _effect: None)) is None
    assert fence.troubles.count == before + 1
    assert "pressure watch: ValueError: MEMORY_PRESSURE_W" in fence.troubles.latest[-1]


def test_fifo(tmp_path: Path, changes: tuple[Relief, Queue[Pressure]]) -> None:
    """A byte in the FIFO is an event, and is read away; what is to be written goes in right after opening."""
    relief, heard = changes
    path = tmp_path / "fifo"
    os.mkfifo(path)
    before = _descriptors()
    watch = PressureWatch(WatchPlan(str(path), b""), relief)
    watch.start()
    with path.open("wb", buffering=0) as writer:
        writer.write(b"x")
        assert heard.get(timeout=30) == Pressure("warning", f"pressure event from {path}")
    watch.close()
    watch.close()
    assert not _threads("oomguard-pressure")
    until(lambda: _descriptors() == before, 30, "its descriptors to be closed")


def test_socket_that_comes_back(tmp_path: Path, changes: tuple[Relief, Queue[Pressure]]) -> None:
    """It connects, writes what it was told to, hears events, and connects again after the server went away."""
    relief, heard = changes
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(15)
        watch = PressureWatch(WatchPlan(str(path), b"threshold"), relief)
        watch.start()
        for _ in range(2):
            link, _ = listener.accept()
            link.settimeout(10)
            assert link.recv(100) == b"threshold"
            link.sendall(b"\n")
            assert heard.get(timeout=30).level == "warning"
            relief.calm()
            assert heard.get(timeout=30).level == "none"
            link.close()
        watch.close()
    assert not _threads("oomguard-pressure")


def test_path_that_is_not_there(tmp_path: Path, changes: tuple[Relief, Queue[Pressure]]) -> None:
    """A path that cannot be opened is said once."""
    relief, _ = changes
    before = fence.troubles.count
    watch = PressureWatch(WatchPlan(str(tmp_path / "nothing"), b""), relief)
    watch.start()
    until(lambda: fence.troubles.count > before, 30, "the trouble")
    watch.close()
    assert fence.troubles.count == before + 1
    assert "nothing: No such file or directory" in fence.troubles.latest[-1]
    assert not _threads("oomguard-pressure")


def _watch_psi(path: str, write: bytes, relief: Relief) -> PressureWatch:
    if not os.access(path, os.W_OK):
        pytest.skip(f"{path} cannot be written here")
    watch = PressureWatch(WatchPlan(path, write), relief)
    watch.start()
    until(lambda: any(path in _target(fd) for fd in _descriptors()), 30, "the file to be open")
    return watch


def test_psi_file_without_pressure(changes: tuple[Relief, Queue[Pressure]]) -> None:
    """A PSI file takes the threshold and stays silent while nothing stalls longer than that."""
    relief, heard = changes
    before = fence.troubles.count
    watch = _watch_psi("/proc/pressure/memory", b"full 1999999 2000000\0", relief)
    watch.close()
    assert heard.empty()
    assert fence.troubles.count == before
    assert not _threads("oomguard-pressure")


def test_psi_file_with_pressure(changes: tuple[Relief, Queue[Pressure]]) -> None:
    """A stall longer than the threshold is an event (of CPU time here, which is quicker made than one of memory)."""
    relief, heard = changes
    watch = _watch_psi("/proc/pressure/cpu", b"some 1000 2000000\0", relief)
    count = 2 * (os.cpu_count() or 1)
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        assert heard.get(timeout=30).reason == "pressure event from /proc/pressure/cpu"
    finally:
        for process in spinning:
            process.kill()
            process.wait()
        watch.close()


def test_psi_file_that_takes_no_threshold(changes: tuple[Relief, Queue[Pressure]]) -> None:
    """A threshold that the kernel refuses is said, and nothing is heard."""
    relief, heard = changes
    before = fence.troubles.count
    watch = PressureWatch(WatchPlan("/proc/pressure/memory", b"some nonsense"), relief)
    watch.start()
    until(lambda: fence.troubles.count > before, 30, "the trouble")
    watch.close()
    assert "/proc/pressure/memory" in fence.troubles.latest[-1]
    assert heard.empty()


def _target(fd: str) -> str:
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except FileNotFoundError:
        return ""
