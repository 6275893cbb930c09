"""Lives that the record saw begin and nobody saw end, as where model, runner and sidecar are killed at once. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from guard.model import LifeId
from sidecar.board import Event
from sidecar.journal import Scalar

_BEGINS: Final = "model_started"
_ENDS: Final = frozenset({"model_ended", "child_ended"})


@dataclass(frozen=True, slots=True)
class Begun:
    """One such life. `last_wall_s`: of the last thing that was told of its model while it was the newest."""

    model: str
    life: LifeId
    last_wall_s: float


def fields_of(life: LifeId) -> dict[str, Scalar]:
    """Give what the event of a beginning says, so that a later sidecar knows the life again."""
    return {"boot_id": life.boot_id, "pid": life.pid, "start_ticks": life.start_ticks, "session": life.session}


def without_end(events: Iterable[Event], ended: Collection[LifeId]) -> tuple[Begun, ...]:
    """Find them among the events of the record (newest last), given the lives whose ends are in it.

    An end counts for the process, whatever its session: a process that calls exec takes a new one.
    """
    begun: dict[str, Begun] = {}
    newest: dict[str, str] = {}
    for event in events:
        session = str(event.fields.get("session", ""))
        if event.kind == _BEGINS and (life := _life(event.fields)) is not None:
            begun[session] = Begun(event.model, life, event.at.wall_s)
            newest[event.model] = session
        elif event.kind in _ENDS:
            begun.pop(session, None)
        elif (current := begun.get(newest.get(event.model, ""))) is not None:
            begun[current.life.session] = replace(current, last_wall_s=event.at.wall_s)
    return tuple(one for one in begun.values() if not is_among(one.life, ended))


def is_among(life: LifeId, others: Collection[LifeId]) -> bool:
    """Whether one of the others is the same process, or has the same session."""
    return any(
        other.session == life.session
        or (other.boot_id, other.pid, other.start_ticks) == (life.boot_id, life.pid, life.start_ticks)
        for other in others
    )


def _life(fields: Mapping[str, Scalar]) -> LifeId | None:
    """Give the life; None in an event of a process that was not handed over, or of a release that did not say it."""
    boot_id, pid = fields.get("boot_id"), fields.get("pid")
    start_ticks, session = fields.get("start_ticks"), fields.get("session")
    if isinstance(boot_id, str) and isinstance(pid, int) and isinstance(start_ticks, int) and isinstance(session, str):
        return LifeId(boot_id, pid, start_ticks, session)
    return None
