"""What is played here: what is wrong with the server, if anything, and by when a judge must have failed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from bench.health.emulated import IN_THE_MACHINE
from bench.health.pace import HERE
from bench.health.scenario import Lane, Scenario, freeze, order, restarting, starve_sidecars, stop, stop_sidecars
from bench.health.server import COMPILE_SECONDS
from bench.health.stage import Casting, throttled
from bench.health.starving import can_starve
from tests.lab.kit.offer import Mode, offer

_FREEZE: Final = "frozen at its limit (v1 oom_kill_disable)"
_STARVE: Final = "sidecars starved by a CPU quota"

_RESTART_SECONDS: Final = 10.0
"""What a sidecar may take to come back and to be handed the server: what it missed is not held against that."""

_TORCH_MIB: Final = 275
"""What torch, the server and the runner take before any weights, and a little."""
_TRANSFORMERS_MIB: Final = 340

LOADS: Final = {
    "torch.load of zip.pt": _TORCH_MIB + 128,
    "torch.load(mmap=True) of zip.pt": _TORCH_MIB,
    "torch.load(BytesIO) of zip.pt": _TORCH_MIB + 320,
    "torch.load + load_state_dict of zip.pt": _TORCH_MIB + 256,
    "torch.load(mmap=True) + load_state_dict of zip.pt": _TORCH_MIB + 128,
    "torch.load of bf16.pt as F32": _TORCH_MIB + 192,
    "torch.load + assign of zip.pt as F16": _TORCH_MIB + 192,
    "safetensors.torch.load_file of model.safetensors": _TORCH_MIB,
    "safetensors.torch.load_file + load_state_dict of model.safetensors": _TORCH_MIB + 128,
    "safetensors.torch.load of model.safetensors": _TORCH_MIB + 256,
    "safetensors.safe_open + clone of model.safetensors": _TORCH_MIB + 128,
    "torch.jit.load of script.pt": _TORCH_MIB + 128,
    "transformers.from_pretrained of llama": _TRANSFORMERS_MIB,
    "transformers.from_pretrained of llama-sharded": _TRANSFORMERS_MIB,
    "transformers.from_pretrained of llama as F32": _TRANSFORMERS_MIB + 256,
}
"""Each load path whose peak is known, with a limit in MiB just above what it takes in anonymous memory."""


def _weights(memory_mib: int, iops: int | None, **more: int) -> Callable[[Mapping[str, Path]], Casting]:
    return lambda files: Casting(limits=throttled(memory_mib, iops), weights=files["big"], grow_mib=more.get("grow", 0))


def _load(name: str, memory_mib: int) -> Callable[[Mapping[str, Path]], Casting]:
    return lambda files: Casting(limits=throttled(memory_mib, 300), load=name, checkpoints=files["checkpoints"])


def _pool(*, through: bool = False) -> Callable[[Mapping[str, Path]], Casting]:
    return lambda _: Casting(workers=4, through=through)


WELL: Final = (
    Scenario(name="idle", lane=Lane.STILL),
    Scenario(name="every core taken", lane=Lane.BUSY, act=order("burn")),
    Scenario(name="8 threads thrash mapped weights, slow disk", lane=Lane.BUSY, act=order("thrash"),
             casting=_weights(100, 400), seconds=40),
    Scenario(name="8 threads thrash mapped weights, fast disk", lane=Lane.BUSY, act=order("thrash"),
             casting=_weights(80, None), seconds=40),
    Scenario(name="anonymous memory at 90 % of the limit", lane=Lane.STILL, act=order("grow"),
             casting=_weights(128, 400, grow=92)),
    Scenario(name="page-cache flood by a neighbour", lane=Lane.BUSY, act=order("flood"), casting=_weights(64, 1000)),
    Scenario(name="slow disk, memory to spare", lane=Lane.BUSY, act=order("thrash"), casting=_weights(1024, 200)),
    *(Scenario(name=f"start: {name}", lane=Lane.LOAD, casting=_load(name, memory_mib), seconds=40)
      for name, memory_mib in LOADS.items()),
    Scenario(name="load that holds the GIL, while serving", lane=Lane.LOAD, act=order("hold_gil"), judges="AC",
             seconds=18),
    Scenario(name="compile within its bound", lane=Lane.STILL, act=order("compile_within"), judges="AC", seconds=18),
    Scenario(name="half of a worker pool has crashed", lane=Lane.STILL, act=order("crash_half"),
             casting=_pool(through=True)),
    Scenario(name="half of a worker pool hangs", lane=Lane.STILL, act=order("hang_half"), casting=_pool(through=True)),
    Scenario(name="sidecars killed while 8 threads thrash", lane=Lane.BUSY, act=restarting("thrash"),
             casting=_weights(100, 400), seconds=30, sidecars_live=False),
    Scenario(name="sidecars stopped for a while", lane=Lane.STILL, act=stop_sidecars, seconds=8),
    Scenario(name=_STARVE, lane=Lane.STILL, act=starve_sidecars, seconds=8),
)  # fmt: skip

HANGS: Final = (
    Scenario(name="compile past its bound", lane=Lane.STILL, act=order("compile_past"), judges="AC",
             bounds={"A": HERE.idle_seconds, "C": COMPILE_SECONDS / 2 + HERE.idle_seconds}),
    Scenario(name="SIGSTOP", lane=Lane.STILL, act=stop, bounds=HERE.idle()),
    Scenario(name="deadlock, idle", lane=Lane.STILL, act=order("deadlock"), bounds=HERE.idle()),
    Scenario(name="deadlock, sidecars killed meanwhile", lane=Lane.STILL, act=restarting("deadlock"),
             bounds=dict.fromkeys("ABC", HERE.idle_seconds + _RESTART_SECONDS), sidecars_live=False),
    Scenario(name="deadlock while other threads thrash", lane=Lane.BUSY, act=order("thrash_then_deadlock"),
             casting=_weights(100, 400), bounds=HERE.pressed()),
    Scenario(name="endless loop that holds the GIL", lane=Lane.BUSY, act=order("spin_with_gil"), bounds=HERE.idle()),
    Scenario(name="endless loop without the GIL", lane=Lane.BUSY, act=order("spin_without_gil"), bounds=HERE.idle()),
    Scenario(name="event loop blocked", lane=Lane.STILL, act=order("block"), bounds=HERE.idle()),
    Scenario(name="accepts and never answers", lane=Lane.STILL, act=order("be_silent"), bounds=HERE.idle()),
    Scenario(name="answers 500", lane=Lane.STILL, act=order("fail"), bounds=HERE.idle()),
    Scenario(name="answers 200 with a dead engine", lane=Lane.STILL, act=order("crash_workers"), judges="AC",
             casting=lambda _: Casting(workers=1), bounds=HERE.idle()),
    Scenario(name="answers 200 with a dead worker pool", lane=Lane.STILL, act=order("crash_workers"), judges="AC",
             casting=_pool(), bounds=HERE.idle()),
    Scenario(name="answers 200, its engine died of a signal", lane=Lane.STILL, act=order("fault_workers"), judges="AC",
             casting=lambda _: Casting(workers=1), bounds=HERE.idle()),
    Scenario(name="every worker hangs, the health page goes through them", lane=Lane.STILL, act=order("hang_workers"),
             casting=_pool(through=True), bounds=HERE.idle()),
    Scenario(name=_FREEZE, lane=Lane.STILL, act=freeze, casting=_weights(64, None, grow=100), bounds=HERE.idle()),
)  # fmt: skip


ALL: Final = (*IN_THE_MACHINE, *WELL, *HANGS)


def playable() -> tuple[Scenario, ...]:
    """Give what can be played here; whether the machine can be had shows when it is booted."""
    missing = dict(_missing())
    return tuple(one for one in ALL if one.name not in missing)


def _missing() -> Iterator[tuple[str, str]]:
    if offer().mode is Mode.V2:
        yield _FREEZE, "needs cgroup v1"
    if not can_starve():
        yield _STARVE, "needs the CPU controller of cgroup v1"


def not_playable() -> Mapping[str, str]:
    """Say what this machine cannot play, and why."""
    return dict(_missing())


SHORT: Final = (
    "8 threads thrash mapped weights, slow disk",
    "deadlock, idle",
    "deadlock while other threads thrash",
)
"""The few that stand for all where time is short."""
