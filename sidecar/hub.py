"""What the parts of the daemon share. Made once in `run`; nothing here decides anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from guard.model import Reading
from sidecar.board import Board
from sidecar.clock import Clock
from sidecar.collect.kmsg import KernelLog
from sidecar.collect.node import NodeReader
from sidecar.journal import Journal
from sidecar.livez import LivenessAnswers
from sidecar.outputs.log import JsonLog
from sidecar.outputs.recorder import Recorder
from sidecar.quiet import NodePast
from sidecar.sample import NO_GPU, GpuSample
from sidecar.settings import Settings
from sidecar.supervise import Degraded


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """Shared parts."""

    settings: Settings
    boot_id: str
    clock: Clock
    board: Board
    journal: Journal
    degraded: Degraded
    log: JsonLog
    node: NodeReader
    kmsg: KernelLog
    recorder: Recorder
    livez: LivenessAnswers = field(default_factory=LivenessAnswers)
    nodes: NodePast = field(default_factory=NodePast)
    gpu: Callable[[], Reading[GpuSample]] = lambda: NO_GPU
    """The last reading of the GPUs; never waits."""
