"""What is played: what is wrong with the server, if anything, and by when a judge must have failed it.

A bound follows from the numbers in `judges`. An idle hang: the plain rule's own worst case, one period more, and two
seconds for ticks. Under pressure: 30 s with the guard; without it, the cap from the plain rule's failure on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench.health.judges import CAP_SECONDS, FAILURE_THRESHOLD, PERIOD_SECONDS, TIMEOUT_SECONDS
from bench.health.server import COMPILE_SECONDS
from bench.health.stage import Casting, Stage, Subject, throttled
from tests.lab.kit.offer import Mode, offer

PLAIN_SECONDS: Final = FAILURE_THRESHOLD * PERIOD_SECONDS + TIMEOUT_SECONDS
IDLE_BOUND_SECONDS: Final = PLAIN_SECONDS + PERIOD_SECONDS + 2.0
IDLE: Final[Mapping[str, float]] = MappingProxyType(dict.fromkeys("ABC", IDLE_BOUND_SECONDS))
PRESSED: Final[Mapping[str, float]] = MappingProxyType({"A": 30.0, "B": PLAIN_SECONDS + CAP_SECONDS + 2.0, "C": 30.0})

Act = Callable[[Stage, Subject], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario. `bounds` is empty where the server is well. A judge that is not in `judges` cannot know."""

    name: str
    act: Act | None = None  # None: nothing happens, or it happens while the server starts
    casting: Callable[[Mapping[str, Path]], Casting] = lambda _: Casting()
    bounds: Mapping[str, float] = field(default_factory=dict)
    judges: str = "ABC"
    seconds: float = 15.0  # how long a well server is watched

    @property
    def healthy(self) -> bool:
        """Whether the server is well."""
        return not self.bounds


def order(fault: str) -> Act:
    """Have the server do it."""
    return lambda _, subject: subject.order(fault)


def stop(_: Stage, subject: Subject) -> None:
    """SIGSTOP to the server."""
    import os
    import signal

    os.kill(subject.pid, signal.SIGSTOP)


def freeze(_: Stage, subject: Subject) -> None:
    """Have the kernel put the server to sleep at its limit instead of killing it (cgroup v1)."""
    (subject.group.trees["memory"] / "memory.oom_control").write_text("1")
    subject.order("grow")


def starve_sidecars(stage: Stage, _: Subject) -> None:
    """Stop both sidecars again and again, for longer than the plain rule allows a model."""
    import os
    import signal
    import time

    pids = [stage.sidecar_pid(name) for name in stage.sidecars]
    for _round in range(2):
        for number, seconds in ((signal.SIGSTOP, PLAIN_SECONDS), (signal.SIGCONT, 1.0)):
            for pid in pids:
                os.kill(pid, number)
            time.sleep(seconds)


def _weights(memory_mib: int, iops: int | None, **more: int) -> Callable[[Mapping[str, Path]], Casting]:
    return lambda files: Casting(limits=throttled(memory_mib, iops), weights=files["big"], grow_mib=more.get("grow", 0))


def _load(how: str, memory_mib: int) -> Callable[[Mapping[str, Path]], Casting]:
    return lambda files: Casting(
        limits=throttled(memory_mib, 300), weights=files["torch" if "torch" in how else "safetensors"], load=how
    )


WELL: Final = (
    Scenario(name="idle"),
    Scenario(name="every core taken", act=order("burn")),
    Scenario(
        name="8 threads thrash mapped weights, slow disk", act=order("thrash"), casting=_weights(100, 400), seconds=40
    ),
    Scenario(
        name="8 threads thrash mapped weights, fast disk", act=order("thrash"), casting=_weights(60, None), seconds=40
    ),
    Scenario(name="anonymous memory at 90 % of the limit", act=order("grow"), casting=_weights(128, 400, grow=92)),
    Scenario(name="page-cache flood by a neighbour", act=order("flood"), casting=_weights(64, 1000)),
    Scenario(name="slow disk, memory to spare", act=order("thrash"), casting=_weights(1024, 200)),
    Scenario(name="start: load_file of mapped weights", casting=_load("load_file", 250), seconds=30),
    Scenario(name="start: safe_open and clone", casting=_load("safe_open_clone", 420), seconds=30),
    Scenario(name="start: torch.load", casting=_load("torch_load", 400), seconds=30),
    Scenario(name="start: torch.load mapped and clone", casting=_load("torch_mmap", 420), seconds=30),
    Scenario(name="start: safetensors.load of bytes (holds the GIL)", casting=_load("bytes", 640), seconds=30),
    Scenario(name="load that holds the GIL, while serving", act=order("hold_gil"), judges="AC", seconds=18),
    Scenario(name="compile within its bound", act=order("compile_within"), judges="AC", seconds=18),
    Scenario(name="sidecars stopped and starved", act=starve_sidecars, seconds=8),
)

HANGS: Final = (
    Scenario(name="compile past its bound", act=order("compile_past"), judges="AC",
             bounds={"A": IDLE_BOUND_SECONDS, "C": COMPILE_SECONDS / 2 + IDLE_BOUND_SECONDS}),
    Scenario(name="SIGSTOP", act=stop, bounds=IDLE),
    Scenario(name="deadlock, idle", act=order("deadlock"), bounds=IDLE),
    Scenario(name="deadlock while other threads thrash", act=order("thrash_then_deadlock"),
             casting=_weights(100, 400), bounds=PRESSED),
    Scenario(name="endless loop that holds the GIL", act=order("spin_with_gil"), bounds=IDLE),
    Scenario(name="endless loop without the GIL", act=order("spin_without_gil"), bounds=IDLE),
    Scenario(name="event loop blocked", act=order("block"), bounds=IDLE),
    Scenario(name="accepts and never answers", act=order("be_silent"), bounds=IDLE),
    Scenario(name="answers 500", act=order("fail"), bounds=IDLE),
    Scenario(name="answers 200 with a dead engine", act=order("lose_engine"), judges="AC",
             casting=lambda _: Casting(engine=True), bounds=IDLE),
    Scenario(name="frozen at its limit (v1 oom_kill_disable)", act=freeze, casting=_weights(64, None, grow=100),
             bounds=IDLE),
)  # fmt: skip

NOT_PLAYED: Final = {
    "memory.high throttling and livelock": "needs cgroup v2",
    "half-dead worker pool": "half of the probes are answered: what is right depends on who calls the other half",
}


def playable() -> tuple[Scenario, ...]:
    """Give what this machine can play."""
    v1_only = {"frozen at its limit (v1 oom_kill_disable)"} if offer().mode is Mode.V2 else set()
    return tuple(one for one in (*WELL, *HANGS) if one.name not in v1_only)


SHORT: Final = (
    "8 threads thrash mapped weights, slow disk",
    "deadlock, idle",
    "deadlock while other threads thrash",
)
"""The few that stand for all where time is short."""
