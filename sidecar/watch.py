"""What the daemon remembers of one model between ticks, and how a way of seeing is taken up and laid down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from sidecar.board import Incident, ProbeTally, kept, replaced
from sidecar.collect.model import ModelReader
from sidecar.collect.probe import Prober
from sidecar.detect.values import Answer
from sidecar.health.judge import JudgeMemory
from sidecar.health.memory import Crash
from sidecar.health.values import Judgement
from sidecar.history import History
from sidecar.livez import Failing
from sidecar.pressure import Told
from sidecar.quiet import Quiet
from sidecar.sample import Instant, LevelId, SightKind
from sidecar.sight.seen import SeenModel, SeenProcess
from sidecar.supervisors.values import Container
from sidecar.unseen import UnseenKills
from sidecar.verdict.values import EndClass

KEPT_INCIDENTS: Final = 20
"""Ends of its main process on the board, and as many of its children. The record holds more."""

Release = Callable[[SeenModel, SeenProcess | None], None]
"""Close the descriptors of a process, or of the whole model."""


_KEPT_CRASHES: Final = 16


@dataclass(slots=True, kw_only=True, eq=False)
class Watch:
    """One model by name, through any number of lives."""

    name: str
    prober: Prober
    ends: dict[str, int]
    incidents: tuple[Incident, ...]
    memory: JudgeMemory
    reader: ModelReader | None = None
    release: Release | None = None
    history: History | None = None
    """Full ticks, about one a second."""
    close_history: History | None = None
    """Every tick: what is watched closely while a limit is near."""
    judgement: Judgement | None = None
    room_bytes: int | None = None
    """The most room below a limit since the model was last looked at closely."""
    pause_seconds: float = 1.0
    """Until it should be looked at again."""
    close_answers: tuple[Answer, ...] = ()
    other_answers: tuple[Answer, ...] = ()
    probes: ProbeTally = field(default_factory=ProbeTally)
    warnings: dict[str, int] = field(default_factory=dict)
    quiet: Quiet = field(default_factory=Quiet)
    unseen: UnseenKills = field(default_factory=UnseenKills)
    died: Instant | None = None
    """When the main process ended; None while it lives, or is not seen."""
    left_well: bool = False
    """Whether that main process exited with status 0."""
    born: Instant | None = None
    """When the life began that is seen now, or was seen last."""
    probe_failing: bool = False
    """Whether the last probe failed."""
    failing_since: Instant | None = None
    """Since when /livez has failed without a break."""
    answered_failing: Failing | None = None
    """The failing answers of /livez in a row, as of the last full tick."""
    told: Told = field(default_factory=Told)
    """What its guards know of pressure."""
    supervised: tuple[Container, ...] = ()
    """What each supervisor said last of its container."""

    @property
    def answers(self) -> tuple[Answer, ...]:
        """What the detectors said last."""
        return (*self.close_answers, *self.other_answers)

    @property
    def sight(self) -> SightKind:
        """How it is seen now."""
        return SightKind.NONE if self.reader is None else self.reader.seen.kind

    @property
    def own_level(self) -> LevelId | None:
        """The cgroup that its processes are in, as far as it is seen."""
        return None if self.reader is None or not self.reader.seen.levels else self.reader.seen.levels[0].id

    def file(self, incident: Incident) -> None:
        """Add an end."""
        self.incidents = kept((incident, *self.incidents), KEPT_INCIDENTS)

    def replace(self, incident: Incident) -> None:
        """Put what is known now of an end in place of what was."""
        self.incidents = replaced(self.incidents, incident)

    def count(self, end_class: EndClass) -> None:
        """Count an end of a main process."""
        self.ends[end_class.value] = self.ends.get(end_class.value, 0) + 1

    def look_through(self, seen: SeenModel, release: Release) -> None:
        """See the model another way from now on; what was seen before is closed."""
        self.look_away()
        self.reader, self.release = ModelReader(seen), release
        self.quiet, self.unseen = Quiet(), UnseenKills()

    def look_away(self) -> None:
        """See nothing of it any more, and close what was seen."""
        reader, release = self.reader, self.release
        self.reader = self.release = None
        if reader is not None and release is not None:
            release(reader.seen, None)

    def note_crash(self, crash: Crash | None) -> None:
        """Have the judge know of an engine's crash."""
        if crash is not None:
            self.memory = replace(self.memory, crashes=(*self.memory.crashes, crash)[-_KEPT_CRASHES:])

    def begin_life(self, session: str | None, born: Instant) -> None:
        """Start anew: a new main process may take its time to load again. One that is known from the record goes on.

        No answer to a question from before `born` counts for it.
        """
        if session is None or session != self.memory.session:
            self.memory = JudgeMemory()
            self.prober.forget_before(born)
        self.died, self.left_well, self.born = None, False, born
        self.failing_since = None
        self.told = Told()
