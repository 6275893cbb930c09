"""Drives the zygote from outside: one child at a time, watched or killed, all of them in one real cgroup."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

from tests.lab.kit.cgroups import Cgroup, Limits

_SIZES = re.compile(rb"^Rss(Anon|File):\s+(\d+) kB", re.MULTILINE)
_PAUSE_SECONDS = 0.001


class ChildError(AssertionError):
    """A child did not do what was expected of it."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """What one run took at most beyond what the process had before, in bytes."""

    anon_bytes: int
    mapped_bytes: int
    seconds: float


class Zygote:
    """The interpreter that forks, inside a cgroup of its own."""

    def __init__(self, process: subprocess.Popen[bytes], group: Cgroup) -> None:
        self._process = process
        self.group = group
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[bytes] = process.stdin
        self._out: IO[bytes] = process.stdout
        self._expect("imported")
        self.anon_bytes = resident(process.pid)["Anon"]  # what every child begins with

    def watch(self, code: str) -> Peaks:
        """Run code to its end and follow its resident memory. Raises `ChildError` if it fails or is killed."""
        pid = self._start(code)
        before = resident(pid)
        peaks = dict(before)
        done = threading.Event()
        follower = threading.Thread(target=_follow, args=(pid, peaks, done))
        follower.start()
        started = time.monotonic()
        self._go()
        said = self._line()
        seconds = time.monotonic() - started
        done.set()
        follower.join()
        if said != "done":
            raise ChildError(f"the code ended early: {said}")
        for name, size in resident(pid).items():
            peaks[name] = max(peaks[name], size)
        self._go()
        self._expect("ended 0")
        return Peaks(peaks["Anon"] - before["Anon"], peaks["File"] - before["File"], seconds)

    def seconds(self, code: str) -> float:
        """Run code to its end and give the time from where it says that it has begun."""
        self._start(code)
        self._go()
        self._expect("begun")
        started = time.monotonic()
        self._expect("done")
        seconds = time.monotonic() - started
        self._go()
        self._expect("ended 0")
        return seconds

    def kill_after(self, code: str, seconds: float) -> bool:
        """Start code, kill it so long after it has begun, and tell whether that came before its end."""
        pid = self._start(code)
        self._go()
        self._expect("begun")
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        return self._killed()

    def starve(self, code: str, arrange: Callable[[int], None], strike: Callable[[], None]) -> bool:
        """Start code that calls `wait()` once it has begun, and tell whether the kernel killed it before its end.

        `arrange` gets its pid while it waits, `strike` is called while it runs.
        """
        pid = self._start(code)
        self._go()
        self._expect("begun")
        arrange(pid)
        self._go()
        strike()
        said = self._line()
        if said == "done":  # what comes now, comes too late
            self._go()
            self._line()
            return False
        return self._was_killed(said)

    def _killed(self) -> bool:
        said = self._line()
        if said == "done":
            self._expect(f"ended {-signal.SIGKILL}")
            return False
        return self._was_killed(said)

    def _was_killed(self, said: str) -> bool:
        if said != f"ended {-signal.SIGKILL}":
            raise ChildError(f"the code was to be killed, but {said}")
        return True

    def _start(self, code: str) -> int:
        self._in.write(json.dumps(code).encode() + b"\n")
        self._in.flush()
        return int(self._line())

    def _go(self) -> None:
        self._in.write(b"\n")
        self._in.flush()

    def _expect(self, text: str) -> None:
        said = self._line()
        if said != text:
            raise ChildError(f"expected {text!r}, heard {said!r}")

    def _line(self) -> str:
        """Read what a child says; what libraries print in between is skipped."""
        while line := self._out.readline().decode().strip():
            if line in ("imported", "begun", "done") or line.isdecimal() or line.startswith("ended "):
                return line
        raise ChildError("the interpreter that forks is gone")


@contextlib.contextmanager
def zygote(modules: Sequence[str], limits: Limits, env: Mapping[str, str]) -> Iterator[Zygote]:
    """Start it in a new cgroup; at the end everything in there is killed and the cgroup removed."""
    with (
        Cgroup.make("preflight", limits) as group,
        start_inside(group, ("bench.preflight.zygote", *modules), env=env) as process,
    ):
        try:
            yield Zygote(process, group)
        finally:
            group.kill_all()


def start_inside(
    group: Cgroup, module: Sequence[str], oom_score_adj: int = 0, env: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    """Start a module of Python inside a cgroup; all its memory is charged there. Its standard streams are pipes."""
    joins = [str(folder / "cgroup.procs") for folder in group.trees.values()]

    def join() -> None:
        for path in joins:
            Path(path).write_text(str(os.getpid()))
        Path("/proc/self/oom_score_adj").write_text(str(oom_score_adj))

    return subprocess.Popen(
        [sys.executable, "-m", *module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **env},
        preexec_fn=join,  # noqa: PLW1509 - joined before it is executed
    )


def _follow(pid: int, peaks: dict[str, int], done: threading.Event) -> None:
    while not done.wait(_PAUSE_SECONDS):
        try:
            for name, size in resident(pid).items():
                peaks[name] = max(peaks[name], size)
        except OSError:
            return


def resident(pid: int) -> dict[str, int]:
    """Read what a process has resident, in bytes: "Anon" and "File"."""
    text = Path(f"/proc/{pid}/status").read_bytes()
    return {name.decode(): int(kib) * 1024 for name, kib in _SIZES.findall(text)}
