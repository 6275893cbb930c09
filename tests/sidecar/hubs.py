"""The parts that the daemon's parts share, in a directory of a test."""

from __future__ import annotations

from pathlib import Path

from guard.kernel.reader import Reader
from sidecar.board import Board, OwnView
from sidecar.collect.kmsg import KernelLog
from sidecar.collect.node import NodeReader
from sidecar.hub import Hub
from sidecar.journal import Journal
from sidecar.outputs.log import JsonLog
from sidecar.outputs.recorder import Recorder
from sidecar.settings import Settings
from sidecar.supervise import Degraded
from tests.sidecar.clocks import VirtualClock
from tests.sidecar.making import at


def make_hub(folder: Path, clock: VirtualClock, *, boot: str = "boot") -> Hub:
    """Make them, with a record that is not open yet; kernel files are those below the directory."""
    board = Board(own=OwnView(started=at(0), last_tick=None, tick_seconds=1, ticks=0, degraded=()))
    reader = Reader(str(folder))
    return Hub(
        settings=Settings(dir=str(folder)),
        boot_id=boot,
        clock=clock,
        board=board,
        journal=Journal(board),
        degraded=Degraded(lambda *_: None),
        log=JsonLog(clock=clock),
        node=NodeReader(reader),
        kmsg=KernelLog(reader, clock),
        recorder=Recorder(folder / "record.sqlite", boot_id="boot"),
    )
