"""What needs cgroup v2: the kernel that holds a group back at memory.high, in a machine that has it (tests/lab/vm)."""

from __future__ import annotations

from typing import Final

from bench.health.pace import EMULATED
from bench.health.scenario import Lane, Scenario, order
from bench.health.stage import Casting
from tests.lab.kit.cgroups import Limits

MIB: Final = 1 << 20


def _high(memory_mib: int, grow_mib: int) -> Casting:
    return Casting(limits=Limits(memory_high_bytes=memory_mib * MIB), grow_mib=grow_mib)


IN_THE_MACHINE: Final = (
    Scenario(name="memory.high: held back at every token", lane=Lane.EMULATED, act=order("churn"),
             casting=lambda _: _high(64, 48), seconds=35),
    Scenario(name="memory.high: livelock", lane=Lane.EMULATED, act=order("grow"),
             casting=lambda _: _high(64, 400), bounds=EMULATED.pressed()),
)  # fmt: skip
