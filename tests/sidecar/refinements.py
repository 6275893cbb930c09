"""A refining on a real record, in virtual time, and ends for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from guard.kernel.reader import Reader
from guard.model import LifeId
from sidecar.board import Board, Incident, OwnView
from sidecar.collect.kmsg import KernelLog
from sidecar.collect.node import NodeReader
from sidecar.endings import Endings
from sidecar.hub import Hub
from sidecar.journal import Journal
from sidecar.outputs.log import JsonLog
from sidecar.outputs.recorder import Recorder
from sidecar.past import Past
from sidecar.refining import Refining
from sidecar.settings import Settings
from sidecar.supervise import Degraded
from sidecar.verdict.supervisor_values import SupervisorEnd, SupervisorWord, SupervisorWordKind
from sidecar.verdict.values import EndEvidence
from tests.sidecar.clocks import SteppedClock, VirtualClock
from tests.sidecar.making import at
from tests.sidecar.verdict.ending import BASE


@dataclass(frozen=True, slots=True)
class Desk:
    """Where ends are published and judged anew."""

    hub: Hub
    past: Past
    refining: Refining
    endings: Endings

    def publish(self, evidence: EndEvidence, model: str = "llm") -> Incident:
        """Make an incident of an end that is new."""
        incident = self.endings.publish(model, evidence)
        assert incident is not None
        return incident

    def only(self) -> Incident:
        """Give the one incident on the board."""
        (incident,) = self.hub.board.incidents()
        return incident

    def refined(self) -> list[str]:
        """Give what was said of verdicts that changed."""
        return [one.text for one in self.hub.board.events if one.kind == "verdict_refined"]


@asynccontextmanager
async def desk(folder: Path, clock: VirtualClock | None = None) -> AsyncIterator[Desk]:
    """Start on the record in a directory, with what is known there."""
    clock = clock or SteppedClock()
    board = Board(own=OwnView(started=at(0), last_tick=None, tick_seconds=1, ticks=0, degraded=()))
    reader = Reader(str(folder))
    hub = Hub(
        settings=Settings(dir=str(folder)),
        boot_id="boot",
        clock=clock,
        board=board,
        journal=Journal(board),
        degraded=Degraded(lambda *_: None),
        log=JsonLog(clock=clock),
        node=NodeReader(reader),
        kmsg=KernelLog(reader, clock),
        recorder=Recorder(folder / "record.sqlite", boot_id="boot"),
    )
    past = Past(board)
    refining = Refining(hub, past)
    endings = Endings(hub, past.sessions, refining)
    known = await hub.recorder.load()
    past.take(known, ())
    refining.restore(known)
    hub.journal.listen(refining.hear_of_gpu)
    try:
        yield Desk(hub, past, refining, endings)
    finally:
        refining.close()
        await hub.recorder.close()


async def until(done: Callable[[], object]) -> None:
    """Wait until it is so, half a minute at most."""
    async with asyncio.timeout(30):
        while not done():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


def end(session: str = "s1", *, after: float = 0.0, **so: object) -> EndEvidence:
    """An end of which nothing is known, so many seconds after the clock's start, but what is given."""
    life = LifeId("boot", 100, 5000, session)
    ended = at(1000.0 + after, wall=1000.0 + after)
    return replace(BASE, life=life, ended=ended, **so)  # type: ignore[arg-type]


def told(kind: SupervisorWordKind | None, finished: float | None = 1001.0, **so: object) -> SupervisorEnd:
    """What a supervisor says of an end at a time."""
    words = () if kind is None else (SupervisorWord(kind=kind, text=f"event {kind}", at_wall_s=1000.0),)
    end = SupervisorEnd(source="Kubernetes API", finished_wall_s=finished, words=words)
    return replace(end, **so)  # type: ignore[arg-type]
