"""Ends that no watch of this sidecar speaks for: those in the record, and those of models that are not seen now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from sidecar.begun import Begun, without_end
from sidecar.board import Board, Incident, kept, replaced
from sidecar.health.judge import JudgeMemory
from sidecar.outputs.record_store import Loaded
from sidecar.outputs.recorder import decode_judge
from sidecar.verdict.values import EndClass
from sidecar.watch import KEPT_INCIDENTS, Watch

_KEPT_INCIDENTS: Final = 50
"""Of main processes of all models, and as many of children; what the record gives back. It holds more itself."""
_NO_ENDS: Mapping[str, int] = MappingProxyType({})


class Past:
    """Shows itself on the board. `sessions` are those whose end is recorded, whoever found it."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._judges: Mapping[str, bytes] = {}
        self.sessions: set[str] = set()
        self.begun: tuple[Begun, ...] = ()
        """Lives that the record saw begin and not end; some may live on, or have ended since."""

    def take(self, known: Loaded, watches: Iterable[Watch]) -> None:
        """Take in what the record knew, at the start or whenever it could be opened.

        What happened here before that comes on top. An end that was found here again, because nobody could know of it
        yet, counts once.
        """
        again = self.sessions & {life.session for life in known.lives}
        self.sessions.update(life.session for life in known.lives)
        self._judges = known.judges
        self.begun = without_end(known.events, known.lives)
        board, ours = self._board, self._board.past_incidents
        counts = {name: Counter(board.past_ends.get(name, _NO_ENDS)) for name in {*board.past_ends, *known.ends}}
        for name, ends in counts.items():
            ends.update(known.ends.get(name, _NO_ENDS))
            ends.subtract(_counted([one for one in ours if one.model == name], again))
        board.past_ends = counts
        board.past_incidents = (*(one for one in ours if one.life.session not in again), *known.incidents)
        for watch in watches:
            _remember(watch, known, again)

    def file(self, incident: Incident) -> None:
        """Add the end of a process whose model is not seen now."""
        board = self._board
        board.past_incidents = kept((incident, *board.past_incidents), _KEPT_INCIDENTS)

    def replace(self, incident: Incident) -> None:
        """Put what is known now of an end in place of what was."""
        self._board.past_incidents = replaced(self._board.past_incidents, incident)

    def count(self, model: str, end_class: EndClass) -> None:
        """Count an end of a model that is not watched."""
        ends = Counter(self._board.past_ends.get(model, _NO_ENDS))
        ends[end_class.value] += 1
        self._board.past_ends = {**self._board.past_ends, model: ends}

    def let_go(self, watch: Watch) -> None:
        """Go on to speak for a model that is watched no more."""
        board = self._board
        board.past_ends = {**board.past_ends, watch.name: dict(watch.ends)}
        unique = {one.id: one for one in (*board.past_incidents, *watch.incidents)}
        newest = sorted(unique.values(), key=lambda one: one.at.wall_s, reverse=True)
        board.past_incidents = kept(newest, _KEPT_INCIDENTS)

    def ends_of(self, name: str) -> dict[str, int]:
        """Give how often the model of this name ended, by class."""
        return dict(self._board.past_ends.get(name, _NO_ENDS))

    def incidents_of(self, name: str) -> tuple[Incident, ...]:
        """Give its incidents, newest first."""
        return kept((one for one in self._board.past_incidents if one.model == name), KEPT_INCIDENTS)

    def judge_of(self, name: str) -> JudgeMemory:
        """Give what its judge remembered, or a fresh memory."""
        memory = decode_judge(self._judges[name], JudgeMemory) if name in self._judges else None
        return memory or JudgeMemory()


def _remember(watch: Watch, known: Loaded, again: set[str]) -> None:
    ends = Counter(watch.ends)
    ends.update(known.ends.get(watch.name, _NO_ENDS))
    ends.subtract(_counted(watch.incidents, again))
    watch.ends = dict(ends)
    mine = (one for one in watch.incidents if one.life.session not in again)
    watch.incidents = kept((*mine, *(one for one in known.incidents if one.model == watch.name)), KEPT_INCIDENTS)


def _counted(incidents: tuple[Incident, ...] | list[Incident], sessions: set[str]) -> Counter[str]:
    """Say how often each class was counted for the ends of these sessions."""
    counted = (one.counted_as for one in incidents if one.main and one.life.session in sessions)
    return Counter(end_class.value for end_class in counted if end_class is not None)
