"""What needs cgroup v2: the kernel that holds a group back at memory.high, in a machine that has it (tests/lab/vm)."""

from __future__ import annotations

from typing import Final

from bench.health.pace import EMULATED
from bench.health.scenario import Lane, Scenario, order
from bench.health.stage import Casting
from tests.lab.kit.cgroups import Limits

MIB: Final = 1 << 20


def _high(**more: int) -> Limits:
    return Limits(memory_high_bytes=64 * MIB, **more)


IN_THE_MACHINE: Final = (
    Scenario(name="memory.high: 8 threads thrash mapped weights", lane=Lane.EMULATED, act=order("thrash"),
             casting=lambda files: Casting(limits=_high(read_iops=400), weights=files["big"]), seconds=40),
    Scenario(name="memory.high: livelock", lane=Lane.EMULATED, act=order("grow"),
             casting=lambda _: Casting(limits=_high(), grow_mib=400), bounds=EMULATED.pressed()),
)  # fmt: skip
