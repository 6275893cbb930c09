"""What the parts of the daemon share. Made once in `run`; nothing here decides anything."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.board import Board
from sidecar.clock import Clock
from sidecar.collect.kmsg import KernelLog
from sidecar.collect.node import NodeReader
from sidecar.journal import Journal
from sidecar.outputs.log import JsonLog
from sidecar.outputs.recorder import Recorder
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
