"""A refining on a real record, in virtual time, and ends for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from guard.model import LifeId
from sidecar.board import Incident
from sidecar.endings import Endings
from sidecar.hub import Hub
from sidecar.past import Past
from sidecar.refining import Refining
from sidecar.verdict.supervisor_values import SupervisorEnd, SupervisorWord, SupervisorWordKind
from sidecar.verdict.values import EndEvidence
from tests.sidecar.clocks import SteppedClock, VirtualClock
from tests.sidecar.hubs import make_hub
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
    hub = make_hub(folder, clock or SteppedClock())
    past = Past(hub.board)
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


def end(session: str = "s1", after: float = 0.0, **so: object) -> EndEvidence:
    """An end of which nothing is known, so many seconds after the clock's start, but what is given."""
    life = LifeId("boot", 100, 5000, session)
    ended = at(1000.0 + after, wall=1000.0 + after)
    return replace(BASE, life=life, ended=ended, **so)  # type: ignore[arg-type]


def told(kind: SupervisorWordKind | None, finished: float | None = 1001.0, **so: object) -> SupervisorEnd:
    """What a supervisor says of an end at a time."""
    words = () if kind is None else (SupervisorWord(kind=kind, text=f"event {kind}", at_wall_s=1000.0),)
    end = SupervisorEnd(source="Kubernetes API", finished_wall_s=finished, words=words)
    return replace(end, **so)  # type: ignore[arg-type]
