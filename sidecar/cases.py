"""Ends that may still be judged anew, with all that is known of each, and which of them a word is about. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from guard.kernel.reader import KeptFile
from guard.model import Known, LifeId
from sidecar.board import Incident, Judged
from sidecar.sample import Instant
from sidecar.sight.seen import SeenProcess
from sidecar.verdict.classify import classify
from sidecar.verdict.joining import because, is_one_end
from sidecar.verdict.supervisor_values import SupervisorEnd
from sidecar.verdict.values import EndEvidence

FIRST_LOOK: Final = "first look, by what was at hand"
NEAR_SECONDS: Final = 30.0
"""How far the supervisor's time of an end may be from ours: it prints whole seconds, and hears of it late."""
NOTICE_SECONDS: Final = 600.0
"""From a supervisor's word that it stops a container to the end: graces of several minutes are usual for models."""
_WHOLE_SECONDS: Final = 2.0
_MOST: Final = {True: 8, False: 4}
"""Main processes and children. What is known of one end takes some 30 KiB."""
_HISTORY: Final = 8


@dataclass(slots=True, kw_only=True)
class Case:
    """One end. `process` is what was seen of it, whose runner may still tell its status.

    `pidfd` is a copy of its own where the status was not known: what was seen of a child is closed at once.
    """

    incident: Incident
    evidence: EndEvidence
    process: SeenProcess | None = None
    pidfd: KeptFile | None = None

    @property
    def is_settled(self) -> bool:
        """Whether what matters most is known of it, or it is too late for that."""
        return self.incident.counted_as is not None or isinstance(self.evidence.wait_status, Known)

    def let_go(self) -> None:
        """Ask the kernel no more."""
        pidfd, self.pidfd = self.pidfd, None
        if pidfd is not None:
            pidfd.close()

    def judge(self, evidence: EndEvidence, now: Instant) -> tuple[Incident, bool]:
        """Judge anew by more evidence; tell whether the verdict itself is another, rather than its grounds alone."""
        before, verdict = self.incident, classify(evidence)
        old = before.verdict
        changed = (verdict.end_class, verdict.confidence, verdict.summary, verdict.level) != (
            *(old.end_class, old.confidence, old.summary),
            old.level,
        )
        history = before.history
        if changed:
            seconds = before.verdict_after_seconds
            first = Judged(
                at=Instant(before.at.monotonic_s + seconds, before.at.wall_s + seconds),
                end_class=old.end_class,
                confidence=old.confidence,
                summary=old.summary,
                because=FIRST_LOOK,
            )
            new = Judged(
                at=now,
                end_class=verdict.end_class,
                confidence=verdict.confidence,
                summary=verdict.summary,
                because=because(self.evidence, evidence),
            )
            start, *rest = (*(history or (first,)), new)
            history = (start, *rest[1 - _HISTORY :])
        self.evidence = evidence
        self.incident = replace(before, verdict=verdict, history=history)
        return self.incident, changed


class Cases:
    """The newest ends of main processes, and apart from them of children.

    One more pushes out the oldest like it of which it is known how it ended, or that is counted: in a burst of ends the
    others still wait for their runner's note.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, Case] = {}

    def __iter__(self) -> Iterator[Case]:
        """Give them, newest first."""
        return reversed(tuple(self._by_id.values()))

    def add(self, case: Case) -> Case | None:
        """Put one in; give the one that has no place any more."""
        self._by_id[case.incident.id] = case
        kind = [one for one in self._by_id.values() if one.incident.main is case.incident.main]
        if len(kind) <= _MOST[case.incident.main]:
            return None
        leaving = next((one for one in kind[:-1] if one.is_settled), kind[0])
        return self._by_id.pop(leaving.incident.id)

    def drop(self, incident_id: str) -> None:
        """Forget one, if it is there."""
        self._by_id.pop(incident_id, None)

    def holds(self, case: Case) -> bool:
        """Whether it is still in."""
        return self._by_id.get(case.incident.id) is case

    def of(self, life: LifeId, model: str | None) -> Case | None:
        """Find the end of a life: by session, or as the same process of this model, which may have several."""
        own = next((one for one in self if one.incident.life.session == life.session), None)
        same = (one for one in self if one.incident.model == model and _is_same(one.incident.life, life))
        return own or next(same, None)

    def told_of(self, model: str, told: SupervisorEnd) -> Case | None:
        """Find the end that a supervisor tells of: the one it told of before, or the nearest that it has not."""
        mains = [one for one in self if one.incident.main and one.incident.model == model]
        for one in mains:
            if any(is_one_end(known, told) and is_near(one.evidence, told) for known in one.evidence.supervisor):
                return one
        free = [one for one in mains if is_near(one.evidence, told) and not _is_told(one, told)]
        return min(free, key=lambda one: _apart_s(one.evidence, told), default=None)


def _is_same(one: LifeId, other: LifeId) -> bool:
    return bool(one.pid) and (one.boot_id, one.pid, one.start_ticks) == (other.boot_id, other.pid, other.start_ticks)


def _is_told(case: Case, told: SupervisorEnd) -> bool:
    return any(known.source == told.source for known in case.evidence.supervisor)


def is_near(evidence: EndEvidence, told: SupervisorEnd) -> bool:
    """Whether the end and what the supervisor tells of may be of one time. Before the end it can only give reasons."""
    if told.finished_wall_s is not None:
        return _apart_s(evidence, told) <= NEAR_SECONDS
    at_s = evidence.ended.wall_s
    walls = [word.at_wall_s for word in told.words if word.at_wall_s is not None]
    return not walls or any(-_WHOLE_SECONDS <= at_s - wall_s <= NOTICE_SECONDS for wall_s in walls)


def _apart_s(evidence: EndEvidence, told: SupervisorEnd) -> float:
    """Give the seconds between the two ends; 0 where the supervisor does not say when: then the newest is nearest."""
    return 0.0 if told.finished_wall_s is None else abs(evidence.ended.wall_s - told.finished_wall_s)
