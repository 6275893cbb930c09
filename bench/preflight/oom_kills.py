"""Has the kernel kill a load for want of memory, at a random moment, and asks its black box what was in flight.

How: once it is ready for its load, the process moves to a cgroup whose limit leaves room for a random part of what the
load will take. What copies runs into it by itself; what only maps its files does not, so a neighbour in there takes the
last memory at a random moment. The kernel then chooses the load, by its oom_score_adj. That it was the kernel is read
from its own counter.
"""

from __future__ import annotations

import errno
import random
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Self

from bench.preflight.cases import Case
from bench.preflight.children import Zygote, resident, start_inside
from bench.preflight.kills import Killed, Load, judge
from guard.fit.check import ask
from guard.fit.need import need
from tests.lab.kit.cgroups import MIB, Cgroup, Limits
from tests.lab.kit.offer import Mode

_TRIES: Final = 200
_SOONER: Final = 0.9
_CHOSEN: Final = 1000  # oom_score_adj of the load
_NEXT: Final = 999  # that of the neighbour, which the kernel takes where the load has ended already
_PLENTY: Final = Limits(memory_max_bytes=1024 * MIB)
_STEP: Final = 2 * MIB
_GREED: Final = 96 * MIB
_PARTS: Final = (0.0, 0.8)  # of what the load will take: so much is left to it, by chance


def starve(zygote: Zygote, folder: Path, cases: Iterable[Case], times: int) -> Iterator[Killed]:
    """Have each case killed so many times."""
    moments = random.Random(7)
    with Cgroup.make("starved", _PLENTY) as group, _Neighbour(group) as neighbour:
        for case in cases:
            attempt = _Attempt(zygote, Load(case, folder), neighbour, moments)
            answers = [attempt.until_killed() for _ in range(times)]
            wrong = tuple(text for text in answers if text not in ("named", "named with tensor"))
            yield Killed(case, times - len(wrong), answers.count("named with tensor"), wrong)


class _Attempt:
    """One case, starved again and again until it is hit within its load."""

    def __init__(self, zygote: Zygote, load: Load, neighbour: _Neighbour, moments: random.Random) -> None:
        self._zygote = zygote
        self._load = load
        self._neighbour = neighbour
        self._group = neighbour.group
        self._moments = moments
        self._seconds = zygote.seconds(load.program())
        question = ask(load.folder / load.case.file, path=load.case.path, dtype=load.case.dtype)
        said = need(question.found, question.path, dtype=question.dtype, on_device=False, import_bytes=0)
        self._takes_bytes = said.anon_bytes

    def until_killed(self) -> str:
        """Give what the box said of the first kill that fell within the load."""
        span = self._seconds
        for _ in range(_TRIES):
            if not self._once(self._moments.uniform(0, span)):
                span *= _SOONER
                continue
            answer = judge(self._load.case, self._load.operations())
            if answer is not None:
                return answer
        return "every kill came too late or too early"

    def _once(self, seconds: float) -> bool:
        group = self._group
        before = _kills(group)

        def arrange(pid: int) -> None:
            Path(f"/proc/{pid}/oom_score_adj").write_text(str(_CHOSEN))
            for folder in group.trees.values():
                (folder / "cgroup.procs").write_text(str(pid))
            still = max(0, self._takes_bytes - (resident(pid)["Anon"] - self._zygote.anon_bytes))
            _tighten(group, round(self._moments.uniform(*_PARTS) * still))

        def strike() -> None:
            time.sleep(seconds)
            self._neighbour.take(_GREED)

        killed = self._zygote.starve(self._load.program("begin(); wait()"), arrange, strike)
        group.set(_PLENTY)
        self._neighbour.take(0)
        if killed:
            assert _kills(group) > before, "killed, but not for want of memory"
        return killed


class _Neighbour:
    """Takes memory in the cgroup. The kernel may kill it: then there is another one."""

    def __init__(self, group: Cgroup) -> None:
        self.group = group
        self._process = self._start()

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def take(self, size: int) -> None:
        """Have it give back what it has and take so many bytes."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{size}\n".encode())
        self._process.stdin.flush()
        if not self._says("took"):
            self._process.communicate()
            self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = start_inside(self.group, ("bench.preflight.neighbour",), _NEXT)
        assert self._says("ready")
        return self._process

    def _says(self, text: str) -> bool:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip() == text


def _tighten(group: Cgroup, room_bytes: int) -> None:
    """Limit a group to what it cannot give back now, and some room. The kernel reclaims the rest or answers EBUSY."""
    limit = _unreclaimable(group) + room_bytes
    while True:
        limit += _STEP
        try:
            group.set(Limits(memory_max_bytes=limit))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        else:
            return


def _unreclaimable(group: Cgroup) -> int:
    names = ("anon", "shmem", "kernel") if group.mode is Mode.V2 else ("total_rss", "total_shmem")
    found = dict(line.split() for line in group.file("memory.stat").read_text().splitlines())
    return sum(int(found.get(name, 0)) for name in names)


def _kills(group: Cgroup) -> int:
    """How often the kernel has killed in this group (v1: since 4.13)."""
    file = group.file("memory.events" if group.mode is Mode.V2 else "memory.oom_control")
    found = re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)
    assert found is not None, f"no oom_kill in {file}"
    return int(found[1])
