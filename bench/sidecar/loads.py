"""Models of the benchmarks that the lab's loads do not offer; they use the guard as a server does.

python -m bench.sidecar.loads work | leave CODE | grow MIB_PER_SECOND | load FILE
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

import guard
from tests.lab.kit.wait import until

MIB: Final = 1 << 20
LOAD_MIB_PER_SECOND: Final = 100
_WORK_SECONDS: Final = 0.067  # no simple ratio to a tick of 0.1 s: who looks at what phase must not matter
_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def command(*words: str) -> list[str]:
    """Give the command line of a load."""
    return [sys.executable, "-m", "bench.sidecar.loads", *words]


def work() -> None:
    """Serve: beats, and memory that comes and goes, so that no two reads of the kernel's files are the same."""
    while True:
        guard.beat("tokens")
        with mmap.mmap(-1, MIB, flags=_PRIVATE) as scratch:
            _touch(scratch)
            time.sleep(_WORK_SECONDS)
        time.sleep(_WORK_SECONDS)


def leave(code: int) -> None:
    """Wait for the start, then exit with this code."""
    _wait_for_start()
    sys.exit(code)


def start(pid: int) -> None:
    """Let a load that waits for it begin."""
    until(lambda: _catches(pid, signal.SIGUSR1), 120, "the load to wait for its start")
    os.kill(pid, signal.SIGUSR1)


def grow(mib_per_second: float) -> None:
    """Wait for the start, then touch private anonymous memory at this pace until killed."""
    _wait_for_start()
    held: list[mmap.mmap] = []
    started = time.monotonic()
    while True:
        held.append(mmap.mmap(-1, MIB, flags=_PRIVATE))
        _touch(held[-1])
        time.sleep(max(0.0, started + len(held) / mib_per_second - time.monotonic()))


def load(path: str) -> None:
    """Wait for the start, then read a checkpoint into anonymous memory, marked as a load, and keep it."""
    _wait_for_start()
    expected = Path(path).stat().st_size
    held: list[bytes] = []
    started = time.monotonic()
    with Path(path).open("rb", buffering=0) as file, guard.loading(path, bytes_expected=expected) as mark:
        while chunk := file.read(MIB):
            held.append(chunk)
            mark.progress(f"tensor.{len(held)}", len(held) * MIB)
            time.sleep(max(0.0, started + len(held) / LOAD_MIB_PER_SECOND - time.monotonic()))
    signal.pause()


def _wait_for_start() -> None:
    started = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: started.set())
    started.wait()


def _catches(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def _touch(memory: mmap.mmap) -> None:
    for offset in range(0, MIB, mmap.PAGESIZE):
        memory[offset] = 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work"]:
            work()
        case ["leave", status]:
            leave(int(status))
        case ["grow", rate]:
            grow(float(rate))
        case ["load", file]:
            load(file)
