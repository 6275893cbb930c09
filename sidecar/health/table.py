"""What the judge answers, as a table: the first row that fits the evidence decides.

House rules
    * Every decision about state, liveness and readiness stands here. `judge` only measures where on each axis the
      evidence lies; docs/health.md is generated from this table.
    * A row names the values that it takes on an axis; an axis left out takes any.
    * Without pressure, or where pressure is unknown, the plain probe rule alone decides (rows of `FAILED`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from sidecar.health.values import State


class Life(StrEnum):
    """Whether the main process lives. Not known counts as alive."""

    ALIVE = "alive"
    ENDED = "ended"  # and its container may start the next one
    DEAD = "dead"  # and nothing has taken its place in time
    ENGINE_DEAD = "engine_dead"  # it lives, but the last process that held the model for it has crashed


class Standing(StrEnum):
    """How the model stands by the plain probe rule."""

    ANSWERS = "answers"  # the last answer was in time and none is overdue
    WAITING = "waiting"  # never answered yet, and the start-up time is not over
    WAVERING = "wavering"  # fewer failures than the threshold, or no answer yet since excused work
    FAILED = "failed"  # the plain rule has failed it
    UNPROBED = "unprobed"  # nobody probes it and no loop tokens stand in


class Squeeze(StrEnum):
    """Memory pressure; `just_ended` for one period and timeout, until the next probe has had its chance."""

    NONE = "none"
    JUST_ENDED = "just_ended"
    RECLAIM = "reclaim"
    THRASH = "thrash"
    UNKNOWN = "unknown"


class Movement(StrEnum):
    """Progress. Loop tokens decide where the guard reports them, else kernel counters of the processes."""

    MOVING = "moving"
    STILL = "still"  # by kernel counters
    LOOP_STILL = "loop_still"  # by loop tokens
    UNKNOWN = "unknown"


class Work(StrEnum):
    """Declared long work in flight that is within its bound."""

    NONE = "none"
    LOADING = "loading"  # and bytes or memory move
    BUSY = "busy"  # declared with a bound by the server


class Leniency(StrEnum):
    """What is left of the patience that pressure and progress buy."""

    LEFT = "left"
    CREDIT_SPENT = "credit_spent"
    CAP_SPENT = "cap_spent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Where the evidence lies on every axis."""

    life: Life
    work: Work
    standing: Standing
    squeeze: Squeeze
    movement: Movement
    leniency: Leniency


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row. An empty tuple takes any value of that axis."""

    life: tuple[Life, ...] = ()
    work: tuple[Work, ...] = ()
    standing: tuple[Standing, ...] = ()
    squeeze: tuple[Squeeze, ...] = ()
    movement: tuple[Movement, ...] = ()
    leniency: tuple[Leniency, ...] = ()
    state: State
    live: bool
    ready: bool
    why: str

    def fits(self, case: Case) -> bool:
        """Tell whether the row takes this case."""
        return all(not taken or value in taken for taken, value in zip(self.axes(), _values(case), strict=True))

    def axes(self) -> tuple[tuple[StrEnum, ...], ...]:
        """Give what the row takes, in the order of `AXES`."""
        return self.life, self.work, self.standing, self.squeeze, self.movement, self.leniency


def _values(case: Case) -> tuple[StrEnum, ...]:
    return case.life, case.work, case.standing, case.squeeze, case.movement, case.leniency


AXES: Final = ("process", "work", "plain probe", "pressure", "progress", "leniency")

_PRESSED: Final = (Squeeze.RECLAIM, Squeeze.JUST_ENDED)

TABLE: Final = (
    Row(
        life=(Life.ENDED,),
        state=State.DEAD,
        live=True,
        ready=False,
        why="the main process has ended; the next one is not failed for it",
    ),
    Row(
        life=(Life.DEAD,),
        state=State.DEAD,
        live=False,
        ready=False,
        why="the main process has ended, and nothing has taken its place in time",
    ),
    Row(
        life=(Life.ENGINE_DEAD,),
        state=State.DEAD,
        live=False,
        ready=False,
        why="the front end lives, but its engine has crashed and nothing has taken its place in time",
    ),
    Row(
        work=(Work.LOADING,),
        standing=(Standing.ANSWERS,),
        state=State.LOADING,
        live=True,
        ready=True,
        why="it answers while a load is in flight",
    ),
    Row(
        work=(Work.LOADING,),
        state=State.LOADING,
        live=True,
        ready=False,
        why="a load is in flight and bytes or memory move",
    ),
    Row(
        work=(Work.BUSY,),
        standing=(Standing.WAITING,),
        state=State.STARTING,
        live=True,
        ready=False,
        why="it starts and is busy with declared work within its bound",
    ),
    Row(
        work=(Work.BUSY,),
        standing=(Standing.WAVERING, Standing.FAILED),
        state=State.SLOW,
        live=True,
        ready=False,
        why="it is busy with declared work within its bound",
    ),
    Row(
        standing=(Standing.ANSWERS,),
        squeeze=(Squeeze.THRASH,),
        state=State.THRASHING,
        live=True,
        ready=False,
        why="it answers in time under heavy memory pressure; load is shed before liveness is in doubt",
    ),
    Row(
        standing=(Standing.ANSWERS,),
        squeeze=(Squeeze.RECLAIM,),
        state=State.RECLAIMING,
        live=True,
        ready=True,
        why="it answers in time under memory pressure",
    ),
    Row(
        standing=(Standing.ANSWERS,),
        state=State.OK,
        live=True,
        ready=True,
        why="it answers in time",
    ),
    Row(
        standing=(Standing.WAITING,),
        state=State.STARTING,
        live=True,
        ready=False,
        why="it has not answered yet and the start-up time is not over",
    ),
    Row(
        standing=(Standing.UNPROBED,),
        squeeze=(Squeeze.THRASH,),
        state=State.THRASHING,
        live=True,
        ready=False,
        why="nobody probes it; it is under heavy memory pressure",
    ),
    Row(
        standing=(Standing.UNPROBED,),
        squeeze=(Squeeze.RECLAIM,),
        state=State.RECLAIMING,
        live=True,
        ready=True,
        why="nobody probes it; it is under memory pressure",
    ),
    Row(
        standing=(Standing.UNPROBED,),
        state=State.UNKNOWN,
        live=True,
        ready=True,
        why="nobody probes it and it reports no loop tokens: all that is known is that it has not ended",
    ),
    Row(
        standing=(Standing.WAVERING,),
        squeeze=(Squeeze.THRASH,),
        state=State.THRASHING,
        live=True,
        ready=False,
        why="an answer is missing under heavy memory pressure, fewer than the threshold in a row",
    ),
    Row(
        standing=(Standing.WAVERING,),
        squeeze=_PRESSED,
        state=State.RECLAIMING,
        live=True,
        ready=False,
        why="an answer is missing under memory pressure, fewer than the threshold in a row",
    ),
    Row(
        standing=(Standing.WAVERING,),
        state=State.SLOW,
        live=True,
        ready=False,
        why="an answer is missing, fewer than the threshold in a row",
    ),
    Row(
        standing=(Standing.FAILED,),
        squeeze=(Squeeze.NONE,),
        state=State.HUNG,
        live=False,
        ready=False,
        why="the plain probe failed as often as allowed, and there is no memory pressure to excuse it",
    ),
    Row(
        standing=(Standing.FAILED,),
        squeeze=(Squeeze.UNKNOWN,),
        state=State.HUNG,
        live=False,
        ready=False,
        why="the plain probe failed as often as allowed, and memory pressure is not known",
    ),
    Row(
        standing=(Standing.FAILED,),
        movement=(Movement.LOOP_STILL,),
        state=State.HUNG,
        live=False,
        ready=False,
        why="the plain probe failed as often as allowed, and the serving loop itself stands still",
    ),
    Row(
        standing=(Standing.FAILED,),
        leniency=(Leniency.CAP_SPENT,),
        state=State.LIVELOCK,
        live=False,
        ready=False,
        why="memory pressure has kept it from answering for as long as is ever excused",
    ),
    Row(
        standing=(Standing.FAILED,),
        leniency=(Leniency.CREDIT_SPENT,),
        state=State.HUNG,
        live=False,
        ready=False,
        why="no sign of the serving loop for as long as memory pressure excuses it",
    ),
    Row(
        standing=(Standing.FAILED,),
        squeeze=(Squeeze.JUST_ENDED,),
        state=State.RECLAIMING,
        live=True,
        ready=False,
        why="memory pressure has just ended; the next probe decides",
    ),
    Row(
        standing=(Standing.FAILED,),
        movement=(Movement.STILL,),
        state=State.HUNG,
        live=False,
        ready=False,
        why="the plain probe failed as often as allowed, and in spite of memory pressure its processes do nothing",
    ),
    Row(
        standing=(Standing.FAILED,),
        movement=(Movement.UNKNOWN,),
        state=State.HUNG,
        live=False,
        ready=False,
        why="the plain probe failed as often as allowed, and nothing shows progress under memory pressure",
    ),
    Row(
        standing=(Standing.FAILED,),
        squeeze=(Squeeze.THRASH,),
        state=State.THRASHING,
        live=True,
        ready=False,
        why="no answer in time, but it makes progress under heavy memory pressure",
    ),
    Row(
        standing=(Standing.FAILED,),
        squeeze=(Squeeze.RECLAIM,),
        state=State.RECLAIMING,
        live=True,
        ready=False,
        why="no answer in time, but it makes progress under memory pressure",
    ),
)


@cache
def look_up(case: Case) -> Row:
    """Give the first row that takes the case; a test shows that every case has one."""
    return next(row for row in TABLE if row.fits(case))


def markdown() -> Iterator[str]:
    """Give the table's lines for docs/health.md."""
    head = ("#", *AXES, "state", "live", "ready", "because")
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for number, row in enumerate(TABLE, start=1):
        taken = (", ".join(value.value for value in axis) or "any" for axis in row.axes())
        answers = ("yes" if answer else "no" for answer in (row.live, row.ready))
        yield f"| {' | '.join((str(number), *taken, row.state.value, *answers, row.why))} |"
