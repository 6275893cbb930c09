"""How the evidence of an end is put together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from guard.box.end_note import EndNote
from guard.model import Beat, BoxState, ExitMark, Known, LifeId, Unknown, Why
from sidecar.ends import Latch, Settled, available_ratio, crash_of_engine, evidence, oom_kill_delta, pair, settle
from sidecar.health.memory import Crash
from sidecar.sample import LevelId, LevelSample, NodeSample
from sidecar.sight.seen import SeenProcess
from sidecar.verdict.classify import classify
from sidecar.verdict.values import EndClass, EndEvidence, Verdict, WaitStatus
from tests.sidecar.clocks import VirtualClock
from tests.sidecar.making import NOT_SAMPLED, V2, at


def level(kills: int, *, anon: int = 0, inode: int = 1) -> LevelSample:
    """One level with so many kills counted."""
    return LevelSample(
        id=LevelId(1, inode), name="/m", depth=0, memory=V2(anon=anon, events={"oom_kill": kills}).memory()
    )


def node(kills: int | None = 0) -> NodeSample:
    """A node that counted so many kills; None: the kernel does not print it."""
    return NodeSample(
        meminfo=Known({"MemTotal": 100, "MemAvailable": 25}),
        vmstat=Known({} if kills is None else {"oom_kill": kills}),
        memory_pressure=NOT_SAMPLED,
        io_pressure=NOT_SAMPLED,
        cpu_pressure=NOT_SAMPLED,
    )


def test_levels_are_paired_by_life() -> None:
    """Of a level that was not read before its counters are not known, so that they show neither change nor none."""
    before, after = level(0), level(2)
    newcomer = level(7, inode=2)
    one, other = pair((before,), (after, newcomer))
    assert (one.before, one.after) == (before, after)
    assert (other.before.id, other.after) == (newcomer.id, newcomer)
    assert isinstance(other.before.memory.events, Unknown)
    assert other.before.memory.max_bytes == newcomer.memory.max_bytes


def test_node_readings_are_unknown_where_a_line_is_missing() -> None:
    """No kill counter and no total give a reason, never zero."""
    assert oom_kill_delta(node(4), Known(6)) == Known(2)
    assert oom_kill_delta(None, Known(6)) == Unknown(Why.NOT_SAMPLED, "/proc/vmstat oom_kill")
    assert oom_kill_delta(node(None), Known(6)) == Unknown(Why.MISSING, "oom_kill")
    assert oom_kill_delta(node(4), Unknown(Why.DENIED, "x")) == Unknown(Why.DENIED, "x")
    assert available_ratio(node()) == Known(0.25)
    assert isinstance(available_ratio(None), Unknown)


def process(pidfd: int | None, told: int | None = None) -> SeenProcess:
    """A process that is only a pidfd, or what its runner told."""
    return SeenProcess(
        life=LifeId("b", 1, 1, "s"),
        parent_session=None,
        command="",
        uid=None,
        pidfd=pidfd,
        files={},
        box=None,
        wait_status_from_runner=told,
    )


async def no_note() -> None:
    """Find no note of the end."""


async def test_settle_takes_the_note_that_the_runner_left() -> None:
    """Where nobody else tells, the note does, as soon as it is there."""
    clock, looks = VirtualClock(), []
    note = EndNote(life=LifeId("b", 1, 1, "s"), name="m", command="c", wait_status=9, at_wall_s=1.0, at_monotonic_s=1.0)

    async def look() -> EndNote | None:
        looks.append(clock.at_s)
        return note if len(looks) == 3 else None

    assert (await settle(process(None), clock, look)).status == Known(WaitStatus(exit_code=None, signal=9))
    assert len(looks) == 3


async def test_settle_waits_for_the_runner_that_knows_of_a_sigterm(reaped_pidfd: int) -> None:
    """The kernel may tell the status first; only the runner knows that the server was told to stop."""
    one, clock = process(reaped_pidfd), VirtualClock()
    one.has_runner = True

    async def look() -> EndNote | None:
        if len(clock.slept) == 2:
            one.wait_status_from_runner, one.sigterm_from_runner_wall_s = 7 << 8, 5.0
        return None

    assert await settle(one, clock, look) == Settled(Known(WaitStatus(exit_code=7, signal=None)), 5.0)
    assert len(clock.slept) == 3


async def test_settle_asks_a_volume_that_hangs_once() -> None:
    """A look that never comes back holds up the verdict no longer than the wait itself."""
    looks = []

    async def look() -> EndNote | None:
        looks.append(1)
        await asyncio.Event().wait()
        return None

    assert isinstance((await settle(process(None), VirtualClock(), look)).status, Unknown)
    assert len(looks) == 1


async def test_settle_takes_what_the_runner_tells() -> None:
    """A raw status from the runner is taken apart at once."""
    clock = VirtualClock()
    assert await settle(process(None, told=3 << 8), clock, no_note) == Settled(Known(WaitStatus(3, None)))
    assert (await settle(process(None, told=9 | 0x80), clock, no_note)).status == Known(
        WaitStatus(None, 9, core_dumped=True)
    )
    assert clock.slept == []


async def test_settle_gives_up_in_time() -> None:
    """Who never tells costs three tenths of a second, and the reason is kept."""
    clock = VirtualClock()
    found = await settle(process(None), clock, no_note)
    assert found == Settled(Unknown(Why.MISSING, "pidfd"))
    assert 0.29 < sum(clock.slept) < 0.35


@pytest.fixture
def reaped_pidfd() -> Iterator[int]:
    """The pidfd of a real child that exited with 7 and was reaped."""
    child = os.fork()
    if child == 0:
        os._exit(7)
    pidfd = os.pidfd_open(child)
    os.waitpid(child, 0)
    yield pidfd
    os.close(pidfd)


async def test_settle_asks_the_pidfd_of_a_real_child(reaped_pidfd: int) -> None:
    """A reaped child's pidfd still tells its exit code where the kernel keeps it (6.15), else says why not."""
    found = (await settle(process(reaped_pidfd), VirtualClock(), no_note)).status
    if isinstance(found, Known):
        assert found.value == WaitStatus(exit_code=7, signal=None)
    else:
        assert found.why in {Why.UNSUPPORTED, Why.NOT_SAMPLED, Why.GONE}


def _end(end_class: EndClass, *, main: bool = False, beats: bool = True) -> tuple[EndEvidence, Verdict]:
    box = BoxState(
        life=LifeId("b", 2, 2, "engine"),
        parent_session="front",
        release="1",
        created_wall_s=0.0,
        command="engine",
        beats=(Beat(name="tokens", count=1, at_monotonic_s=1.0),) if beats else (),
    )
    latch = Latch(
        life=box.life,
        began_monotonic_s=None,
        node_pid=None,
        main=main,
        main_was_alive=True,
        ended=at(5),
        levels=(),
        hidden_ancestors=False,
        node_oom_kill_delta=NOT_SAMPLED,
        node_available_ratio=NOT_SAMPLED,
        box=Known(box),
        liveness_failures_answered=0,
        liveness_failing=None,
        liveness_threshold=3,
    )
    found = evidence(latch, NOT_SAMPLED, NOT_SAMPLED, 1)
    return found, replace(classify(found), end_class=end_class, summary="it crashed")


def test_a_crashed_child_that_held_the_model_is_an_engines_crash() -> None:
    """A child with beats or a load that crashed is told to the judge, under its parent."""
    assert crash_of_engine(*_end(EndClass.CRASH_SIGNAL)) == Crash("front", 5.0, "it crashed")


@pytest.mark.parametrize("end_class", [EndClass.EXTERNAL_KILL, EndClass.UNKNOWN, EndClass.DELETION])
def test_an_engine_that_somebody_ended_has_not_crashed(end_class: EndClass) -> None:
    """Front ends end engines on purpose, to load another model."""
    assert crash_of_engine(*_end(end_class)) is None


@pytest.mark.parametrize(("code", "crashed"), [(1, True), (134, True), (143, False), (130, False), (129, False)])
def test_an_engine_that_ended_as_it_was_told_has_not_crashed(code: int, *, crashed: bool) -> None:
    """An exit code of 128 and a signal that asks to end is an order obeyed; by the wait status or by its own mark."""
    found, verdict = _end(EndClass.APPLICATION_EXIT)
    assert isinstance(found.box, Known)
    marked = replace(found.box.value, exit_mark=ExitMark(1.0, 1.0, code))
    for one in (replace(found, wait_status=Known(WaitStatus(code, None))), replace(found, box=Known(marked))):
        assert (crash_of_engine(one, verdict) is not None) is crashed


def test_a_helper_is_no_engine() -> None:
    """A child that never held a model, and the main process itself, are no engines."""
    assert crash_of_engine(*_end(EndClass.CRASH_SIGNAL, beats=False)) is None
    assert crash_of_engine(*_end(EndClass.CRASH_SIGNAL, main=True)) is None
