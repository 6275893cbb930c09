"""Black boxes and end notes in the shared directory: of processes that ended while no sidecar ran, or accounted for.

A box says whose it is, not whether its process lives, which is in another PID namespace. The process has ended when
its boot is another one, when the box holds an exit mark, or when nobody holds the box's lock (docs/box-format.md).
Where the volume has no locks it is taken for ended when nobody has handed it over for `GRACE_SECONDS`, although a
guard tries again at least every half minute, and nothing in the box has moved meanwhile.

`oomguard run` leaves a note of every end with the exact wait status (see `guard.box.end_note`), which is an end at
once. Box and note of one process are one end, by the session that they share.

A life that the record saw begin and that left neither, as where everything was killed at once, has ended when nobody
has handed it over again for `GRACE_SECONDS` and no process of that pid and start is to be seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from guard.box import end_note
from guard.box import format as box_format
from guard.box.end_note import EndNote
from guard.box.faults import NativeFault
from guard.box.prune import FAULTS_SUFFIX, is_held
from guard.box.reader import parse_box
from guard.kernel import identity
from guard.kernel.reader import Reader
from guard.model import BoxState, Known, LifeId, Reading, Unknown, Why
from sidecar.begun import Begun
from sidecar.clock import began_s
from sidecar.collect import node_pid
from sidecar.collect.exit_status import from_raw
from sidecar.ends import kills_of
from sidecar.hub import Hub
from sidecar.leavings import BOX_SUFFIX, Left, fault_of, names, scan_notes
from sidecar.sample import Instant
from sidecar.verdict.values import NOT_LOOKED_FOR, EndEvidence

GRACE_SECONDS: Final = 60.0
_NO_BOX: Final = Unknown(Why.MISSING, "black box")
_SCAN_SECONDS: Final = 20.0
_FIRST_SECONDS: Final = 3.0  # a living model hands over first, so that an end is told under its name


@dataclass(frozen=True, slots=True)
class Found:
    """One box file. `held`: whether its writer lives, by the lock; None where locks cannot tell."""

    path: str
    state: BoxState
    held: bool | None
    fault: Reading[NativeFault] = NOT_LOOKED_FOR


@dataclass(frozen=True, slots=True)
class _End:
    """What lies there of one ended process, or that the record saw it begin; at least one of the three."""

    box: Found | None = None
    note: EndNote | None = None
    begun: Begun | None = None

    @property
    def life(self) -> LifeId:
        if self.box is not None:
            return self.box.state.life
        told = self.note or self.begun
        assert told is not None
        return told.life

    @property
    def name(self) -> str | None:
        """Of its model, if it is known."""
        if self.begun is not None:
            return self.begun.model
        name = None if self.box is None else self.box.state.name
        return name if name is not None or self.note is None else self.note.name

    @property
    def left(self) -> Left:
        """What it left, as far as it was found now."""
        if self.box is None:
            return Left(note=self.note, box=_NO_BOX, fault=NOT_LOOKED_FOR)
        return Left(note=self.note, box=Known(self.box.state), fault=self.box.fault)

    def ended_wall_s(self, now: Instant) -> float:
        """When it ended, by the note, or when it last gave a sign of life."""
        if self.note is not None:
            return self.note.at_wall_s
        if self.box is not None:
            return last_sign(self.box.state, now).wall_s
        return now.wall_s if self.begun is None else self.begun.last_wall_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """What is known elsewhere.

    `in_sight` gives the sessions whose ends are noticed otherwise, `recorded` are those whose ends are known; `ended`
    makes the incident of an orphan, given its model's name if the box holds one. `found` hears what a process left
    whose end may be known, and tells whether it is. `begun` gives the lives that the record saw begin and not end,
    less those in sight.
    """

    in_sight: Callable[[], set[str]]
    recorded: Collection[str]
    ended: Callable[[str | None, EndEvidence], None]
    found: Callable[[LifeId, str | None, Left], bool]
    begun: Callable[[], Collection[Begun]] = tuple


class Boxes:
    """Looks through the directory now and then, in a thread."""

    def __init__(self, hub: Hub, accounts: Accounts) -> None:
        self._hub = hub
        self._accounts = accounts
        self._directory = f"{hub.settings.dir}/boxes"
        self._unmoved: dict[str, tuple[float, BoxState]] = {}

    async def run(self) -> None:
        """Scan for ever. A file goes once the end of its process is on disk."""
        since_s = self._hub.clock.now().monotonic_s
        await self._hub.clock.sleep(_FIRST_SECONDS)
        while True:
            await self._scan(since_s)  # apart, so that nothing of what it read stays while this sleeps
            await self._hub.clock.sleep(_SCAN_SECONDS)

    async def _scan(self, since_s: float) -> None:
        found = await asyncio.to_thread(scan, self._directory)
        notes = await asyncio.to_thread(scan_notes, self._directory)
        ended = self._ended(found, notes)
        if self._hub.clock.now().monotonic_s - since_s >= GRACE_SECONDS:
            ended += await self._lost({box.state.life.session for box in found} | {end.life.session for end in ended})
        for end in ended:
            known = self._accounts.found(end.life, end.name, end.left)
            if not known and end.life.session not in self._accounts.recorded:
                self._accounts.ended(end.name, self._evidence(end))
        if ended and await self._hub.recorder.flush():
            await asyncio.to_thread(_remove, [path for end in ended for path in self._paths(end)])

    def _ended(self, boxes: list[Found], notes: list[EndNote]) -> list[_End]:
        """Put boxes and notes of ended processes together."""
        in_sight = self._accounts.in_sight()
        noted = {note.life.session: note for note in notes if not self._is_looked_into(note.life.session, in_sight)}
        ends = [
            _End(box=box, note=noted.pop(box.state.life.session, None))
            for box in boxes
            if box.state.life.session in noted or self._has_ended(box, in_sight)
        ]
        return ends + [_End(note=note) for note in noted.values()]

    async def _lost(self, left_something: set[str]) -> list[_End]:
        """Give the lives that left nothing and do not live."""
        told = {*left_something, *self._accounts.recorded}
        missed = [one for one in self._accounts.begun() if one.life.session not in told]
        return [_End(begun=one) for one in missed if not await asyncio.to_thread(self._is_to_be_seen, one.life)]

    def _is_to_be_seen(self, life: LifeId) -> bool:
        """Whether our /proc shows it: a frozen process does not hand over. Another PID namespace shows another one."""
        return life.boot_id == self._hub.boot_id and identity.start_ticks(Reader(), life.pid) == Known(life.start_ticks)

    def _is_looked_into(self, session: str, in_sight: set[str]) -> bool:
        return session in in_sight and session not in self._accounts.recorded

    def _paths(self, end: _End) -> list[str]:
        note = [] if end.note is None else [f"{self._directory}/{end.life.session}{end_note.SUFFIX}"]
        fault = f"{self._directory}/{end.life.session}{FAULTS_SUFFIX}"
        return note if end.box is None else [end.box.path, fault, *note]

    def _has_ended(self, box: Found, in_sight: set[str]) -> bool:
        state, session = box.state, box.state.life.session
        if session in self._accounts.recorded:
            return True
        if session in in_sight:
            self._unmoved.pop(session, None)
            return False
        other_boot = bool(self._hub.boot_id) and state.life.boot_id != self._hub.boot_id
        if other_boot or state.exit_mark is not None:
            return True
        return not box.held if box.held is not None else self._is_silent(state)

    def _is_silent(self, state: BoxState) -> bool:
        session = state.life.session
        now_s = self._hub.clock.now().monotonic_s
        since_s, before = self._unmoved.get(session, (now_s, state))
        if before != state:
            since_s = now_s
        self._unmoved[session] = (since_s, state)
        return now_s - since_s >= GRACE_SECONDS

    def _evidence(self, end: _End) -> EndEvidence:
        unseen = Unknown(Why.NOT_SAMPLED, "sidecar", detail="no sidecar saw this end")
        life, note, now = end.life, end.note, self._hub.clock.now()
        state = None if end.box is None else end.box.state
        same_boot = life.boot_id == self._hub.boot_id
        began = began_s(life.start_ticks) if same_boot else None
        return EndEvidence(
            life=life,
            began_monotonic_s=began,
            # Its namespace is gone with it. Where we are in the initial one it is taken for one of ours: that a foreign
            # victim has the same number in the seconds around the end is next to impossible.
            node_pid=life.pid if same_boot and node_pid.is_initial(Reader()) else None,
            main=state is None or state.parent_session is None,
            ended=_back_then(end.ended_wall_s(now), now),
            wait_status=unseen if note is None else Known(from_raw(note.wait_status)),
            sigterm_wall_s=None if note is None else note.sigterm_wall_s,
            runner_kills=None if note is None else kills_of(note),
            levels=(),
            hidden_ancestors=True,
            node_oom_kill_delta=unseen,
            node_available_ratio=unseen,
            kmsg=self._hub.kmsg.since(began or 0.0) if same_boot else unseen,
            box=end.left.box,
            fault=end.left.fault,
            liveness_failures_answered=0,
            others_alive=0,
        )


def scan(directory: str) -> list[Found]:
    """Read the boxes there are; what is no box, or damaged, is left alone."""
    reader, found = Reader(), []
    for name in names(reader, directory, BOX_SUFFIX):
        path = f"{directory}/{name}"
        data = reader.read(path, box_format.SIZE)
        state = data if isinstance(data, Unknown) else parse_box(data.value, path)
        if isinstance(state, Known) and name == state.value.life.session + BOX_SUFFIX:
            session = state.value.life.session
            found.append(Found(path, state.value, is_held(path), fault_of(directory, session)))
    return found


def last_sign(state: BoxState, now: Instant) -> Instant:
    """Give the last moment the process is known to have lived, by the box alone."""
    walls = [state.created_wall_s, *(failure.at_wall_s for failure in state.failures)]
    walls += [] if state.sigterm_wall_s is None else [state.sigterm_wall_s]
    walls += [] if state.exit_mark is None else [state.exit_mark.at_wall_s]
    offset_s = now.wall_s - now.monotonic_s
    walls += [operation.updated_monotonic_s + offset_s for operation in state.operations]
    walls += [beat.at_monotonic_s + offset_s for beat in state.beats]
    return _back_then(max(walls), now)


def _back_then(wall_s: float, now: Instant) -> Instant:
    """Give a moment of the past by the wall clock; times of another boot may lie ahead."""
    wall_s = min(wall_s, now.wall_s)
    return Instant(monotonic_s=now.monotonic_s - (now.wall_s - wall_s), wall_s=wall_s)


def _remove(paths: list[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # another user's file in a sticky directory: the pod takes it with it
            os.unlink(path)  # noqa: PTH108 - a path as text is all there is
