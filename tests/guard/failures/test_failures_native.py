"""Deaths by a signal of the process's own making leave their Python stack beside the box."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.box.faults import LIMIT_BYTES, NativeFault, parse_faults
from guard.model import Known, Unknown
from tests.guard.hosts import Ended, run_host

HOST = "import faulthandler, os, signal, sys, threading\nimport guard\n{}\ndef serve(): {}\nserve()"
FAULT = "os.kill(os.getpid(), signal.{})"


def _faults(shared: Path) -> list[NativeFault | None]:
    """Every trace beside a box, oldest first; None for a file without one."""
    found = []
    for path in sorted((shared / "boxes").glob("*.faults"), key=lambda path: path.stat().st_ctime):
        read = parse_faults(path.read_bytes(), str(path))
        found.append(read.value if isinstance(read, Known) else None)
    return found


def _run(what: str, shared: Path, before: str = "guard.install()", more: dict[str, str] | None = None) -> Ended:
    return run_host(HOST.format(before, what), shared, more)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL"])
def test_each_signal(name: str, tmp_path: Path) -> None:
    """The wait status stays the signal, standard error stays empty, the trace says where the thread was."""
    ended = _run(FAULT.format(name), tmp_path)
    assert (ended.returncode, ended.err) == (-signal.Signals[name], "")
    (fault,) = _faults(tmp_path)
    assert fault is not None
    assert (fault.signal, fault.stack) == (name, ("<string>:5 <module>", "<string>:4 serve"))
    assert ("/dev/shm" in fault.do) is (name == "SIGBUS")


@pytest.mark.parametrize(
    ("before", "more"),
    [
        ("faulthandler.enable(); guard.install()", {}),
        ("guard.install(); faulthandler.enable()", {}),
        ("guard.install()", {"PYTHONFAULTHANDLER": "1"}),
    ],
    ids=["before", "after", "by environment"],
)
def test_the_servers_own_faulthandler(before: str, more: dict[str, str], tmp_path: Path) -> None:
    """A faulthandler that the server switches on, before or after us, gets the trace, and nothing warns."""
    ended = _run(FAULT.format("SIGSEGV"), tmp_path, before, more)
    assert ended.returncode == -signal.SIGSEGV
    assert ended.err.startswith("Fatal Python error: Segmentation fault")
    assert _faults(tmp_path) in ([], [None])


def test_uninstalled(tmp_path: Path) -> None:
    """After uninstall there is no faulthandler of ours; one that the server has switched on since stays on."""
    code = (
        "h = guard.install(); a = faulthandler.is_enabled(); h.uninstall(); b = faulthandler.is_enabled()\n"
        "h = guard.install(); faulthandler.enable(); h.uninstall(); print(a, b, faulthandler.is_enabled())"
    )
    assert _run("pass", tmp_path, code).out == "True False True\n"


@pytest.mark.parametrize("word", ["off", "0"])
def test_off_switch(word: str, tmp_path: Path) -> None:
    """OOMGUARD_FAULTS=off leaves the faulthandler alone."""
    code = "guard.install(); print(faulthandler.is_enabled(), guard.status().trouble_count)"
    assert _run("pass", tmp_path, code, {"OOMGUARD_FAULTS": word}).out == "False 0\n"
    assert _faults(tmp_path) == []


def test_forked_child(tmp_path: Path) -> None:
    """A forked child that faults writes beside its own box, and its parent's file stays empty."""
    code = "\n    pid = os.fork()\n    if not pid: " + FAULT.format("SIGSEGV") + "\n    os.waitpid(pid, 0)"
    assert _run(code, tmp_path).err == ""
    found = _faults(tmp_path)
    assert [fault is None for fault in found].count(True) == 1
    assert next(fault for fault in found if fault is not None).signal == "SIGSEGV"


def test_traces_without_a_box_are_removed(tmp_path: Path) -> None:
    """The next process removes a trace whose box is gone, and no other."""
    _run(FAULT.format("SIGSEGV"), tmp_path)
    (box,) = (tmp_path / "boxes").glob("*.box")
    _run("pass", tmp_path)
    assert len(_faults(tmp_path)) == 2
    box.unlink()
    _run("pass", tmp_path)
    assert box.with_suffix(".faults").exists() is False
    assert len(_faults(tmp_path)) == 2


@pytest.mark.lab
def test_full_shared_memory(tmp_path: Path) -> None:
    """A write to shared memory that is full ends by SIGBUS, and the trace names the line and what to do."""
    code = """
import ctypes, mmap, os
ctypes.CDLL(None, use_errno=True).unshare(0x20000)
os.makedirs("/dev/shm", exist_ok=True)
assert os.system("mount --make-rprivate / && mount -t tmpfs -o size=64k tmpfs /dev/shm") == 0
import guard; guard.install()
def fill():
    with open("/dev/shm/segment", "w+b") as file:
        file.truncate(1 << 20)
        mapped = mmap.mmap(file.fileno(), 1 << 20)
        for page in range(0, 1 << 20, 4096):
            mapped[page] = 1
fill()
"""
    assert run_host(code, tmp_path).returncode == -signal.SIGBUS
    (fault,) = _faults(tmp_path)
    assert fault is not None
    assert fault.signal == "SIGBUS"
    assert fault.stack[-1].endswith(" fill")
    assert "--shm-size" in fault.do


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    """No bytes make the reader raise, and what it finds is bounded."""
    for whole in (data, b"Fatal Python error: Aborted\n\n" + data, b"x" * LIMIT_BYTES + data):
        read = parse_faults(whole, "f")
        assert isinstance(read, Unknown) or len(read.value.stack) <= 16


def test_other_errors_and_other_threads() -> None:
    """An error that is no signal has none; the thread it happened in is found among others; the last trace counts."""
    text = (
        "Fatal Python error: Aborted\n\nCurrent thread 0x01 (most recent call first):\n  <no Python frame>\n\n"
        "Fatal Python error: _Py_FatalErrorFunc: lost\n\nThread 0x01 (most recent call first):\n"
        '  File "/a.py", line 3 in other\n\nCurrent thread 0x02 [name] (most recent call first):\n'
        '  File "/b.py", line ??? in inner\n  File "/b.py", line 5 in outer\n\nExtension modules: x\n'
    )
    read = parse_faults(text.encode(), "f")
    assert isinstance(read, Known)
    assert read.value == NativeFault("_Py_FatalErrorFunc: lost", None, ("/b.py:5 outer", "/b.py:??? inner"), "")
