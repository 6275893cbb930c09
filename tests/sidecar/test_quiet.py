"""What counts as before an end: the reading before any kill counter moved, and never one from before the life."""

from __future__ import annotations

from guard.model import Known
from sidecar.quiet import Base, Quiet, later
from sidecar.sample import LevelId, LevelSample, NodeSample
from tests.sidecar.making import NOT_SAMPLED, V2, at


def level(kills: int, *, anon: int = 0) -> LevelSample:
    """One level with so many kills counted."""
    return LevelSample(id=LevelId(1, 1), name="/m", depth=0, memory=V2(anon=anon, events={"oom_kill": kills}).memory())


def node(kills: int = 0) -> NodeSample:
    """A node that counted so many kills."""
    return NodeSample(
        meminfo=NOT_SAMPLED,
        vmstat=Known({"oom_kill": kills}),
        memory_pressure=NOT_SAMPLED,
        io_pressure=NOT_SAMPLED,
        cpu_pressure=NOT_SAMPLED,
    )


def read(quiet: Quiet, second: float, kills: int) -> None:
    """Tick with so many kills counted."""
    quiet.tick(at(second), (level(kills),), node(kills))


def test_before_is_the_tick_before_the_kill_counter_moved() -> None:
    """Ticks between the kill and the wake-up see the moved counter; they do not become the before."""
    quiet = Quiet()
    quiet.tick(at(1), (level(0, anon=10),), node(0))
    quiet.tick(at(2), (level(0, anon=90),), node(0))
    quiet.tick(at(3), (level(1, anon=50),), node(1))
    quiet.tick(at(9), (level(1, anon=5),), node(1))
    assert quiet.base == Base(2, (level(0, anon=90),), node(0))


def test_a_group_kill_explains_all_its_ends_but_not_a_later_one() -> None:
    """Right after an end the same kill still explains the next; seconds later it does not."""
    quiet = Quiet()
    read(quiet, 1, 0)
    read(quiet, 2, 3)
    quiet.end(at(2.1), (level(3),), node(3))
    read(quiet, 3, 3)
    assert quiet.base.levels == (level(0),)
    read(quiet, 5, 3)
    assert quiet.base.levels == (level(3),)


def test_an_unexplained_kill_is_forgotten_after_a_while() -> None:
    """A kill of somebody who is not watched does not explain an end half a minute later."""
    quiet = Quiet()
    read(quiet, 1, 0)
    read(quiet, 2, 1)
    read(quiet, 31, 1)
    assert quiet.base.levels == (level(0),)
    read(quiet, 33, 1)
    assert quiet.base.levels == (level(1),)


def test_the_next_life_starts_with_the_counters_at_the_last_end() -> None:
    """What killed the last life is counted already, however soon the next one is there, and its own kill is new."""
    quiet = Quiet()
    read(quiet, 1, 0)
    quiet.end(at(2), (level(1),), node(1))
    assert quiet.base.levels == (level(0),)  # another process of the same group kill
    newcomer = quiet.for_newcomer(1.99)  # the supervisor was faster than the wake-up
    assert newcomer == Base(2, (level(1),), node(1))
    read(quiet, 2.2, 2)
    assert later(quiet.base, newcomer) == newcomer


def test_a_kill_between_two_lives_is_of_neither() -> None:
    """The last reading before the start counts, although a kill before it is not explained yet."""
    quiet = Quiet()
    read(quiet, 1, 0)
    read(quiet, 2, 1)
    assert quiet.for_newcomer(2.5).levels == (level(1),)


def test_a_reading_from_within_a_life_is_no_reason_to_forget_its_kill() -> None:
    """A process that hands over late was perhaps killed already: only readings from before its start come before."""
    quiet = Quiet()
    read(quiet, 1, 0)
    read(quiet, 2, 1)
    assert quiet.for_newcomer(1.5).levels == (level(0),)
    assert quiet.for_newcomer(None).levels == (level(0),)


def test_a_quiet_reading_of_its_own_life_is_later_than_that_of_its_hand_over() -> None:
    """The base of a process moves on with the quiet ticks."""
    quiet = Quiet()
    read(quiet, 1, 0)
    newcomer = quiet.for_newcomer(1.5)
    read(quiet, 3, 0)
    assert later(quiet.base, newcomer).at_s == 3
    assert later(quiet.base, None).at_s == 3
