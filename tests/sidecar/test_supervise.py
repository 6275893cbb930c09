"""Supervision: restarts with growing pauses, degraded words, and cancellation that always ends things."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.outputs.log import JsonLog
from sidecar.supervise import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, WELL_AFTER_SECONDS, Degraded, Supervisor
from tests.sidecar.clocks import VirtualClock


@pytest.fixture
def log(tmp_path: Path) -> Iterator[JsonLog]:
    """A log that goes to a file."""
    with (tmp_path / "log").open("wb") as file:
        yield JsonLog(clock=VirtualClock(), fd=file.fileno())


async def test_a_failing_task_starts_again_with_doubling_pauses(log: JsonLog) -> None:
    """Each failure doubles the pause, up to a bound, and the task goes on to run."""
    clock, told = VirtualClock(), []
    supervisor = Supervisor(clock, Degraded(lambda *change: told.append(change)), log)
    runs, reached = 0, asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs <= 8:
            raise OSError("no luck")
        reached.set()
        await asyncio.Event().wait()

    supervisor.start("reader", work)
    await asyncio.wait_for(reached.wait(), 30)
    assert clock.slept == [FIRST_PAUSE_SECONDS * 2**n for n in range(6)] + [LONGEST_PAUSE_SECONDS] * 2
    assert told == [("reader", "OSError: no luck; trying again")]
    await supervisor.stop_all()


async def test_a_long_good_run_forgets_old_failures(log: JsonLog) -> None:
    """A failure after a good minute is answered with the first pause again."""
    clock = VirtualClock()
    supervisor = Supervisor(clock, Degraded(lambda *_: None), log)
    runs, reached = 0, asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 4:
            clock.at_s += WELL_AFTER_SECONDS
        if runs == 5:
            reached.set()
            await asyncio.Event().wait()
        raise ValueError

    supervisor.start("x", work)
    await asyncio.wait_for(reached.wait(), 30)
    assert clock.slept == [0.5, 1.0, 2.0, 0.5]
    await supervisor.stop_all()


async def test_a_task_that_ends_by_itself_counts_as_failed(log: JsonLog) -> None:
    """An eternal task that returns is named and started again."""
    clock, told = VirtualClock(), asyncio.Queue[tuple[str, str | None]]()
    supervisor = Supervisor(clock, Degraded(lambda *change: told.put_nowait(change)), log)

    async def work() -> None:
        await asyncio.sleep(0)

    supervisor.start("short", work)
    subject, words = await asyncio.wait_for(told.get(), 30)
    assert subject == "short"
    assert words is not None
    assert "ended by itself" in words
    await supervisor.stop_all()


async def test_a_task_that_recovers_is_no_longer_degraded(log: JsonLog) -> None:
    """Once a task runs again its words go away."""
    told = asyncio.Queue[tuple[str, str | None]]()
    degraded = Degraded(lambda *change: told.put_nowait(change))
    supervisor = Supervisor(VirtualClock(), degraded, log)
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise OSError("once")
        await asyncio.Event().wait()

    supervisor.start("x", work)
    assert (await asyncio.wait_for(told.get(), 30))[1] is not None
    assert (await asyncio.wait_for(told.get(), 30)) == ("x", None)
    assert degraded.words() == ()
    await supervisor.stop_all()


async def test_what_a_task_says_under_its_own_name_is_its_own_to_clear(log: JsonLog) -> None:
    """A task that runs well may still have something to say that does not work."""
    told = asyncio.Queue[tuple[str, str | None]]()
    degraded = Degraded(lambda *change: told.put_nowait(change))
    supervisor = Supervisor(VirtualClock(), degraded, log)
    fine = asyncio.Event()

    async def work() -> None:
        degraded.set("x", "another one keeps the file")
        asyncio.get_running_loop().call_later(1.2 * FIRST_PAUSE_SECONDS, fine.set)
        await asyncio.Event().wait()

    supervisor.start("x", work)
    await asyncio.wait_for(fine.wait(), 30)
    assert degraded.words() == ("x: another one keeps the file",)
    supervisor.cancel("x")
    assert [told.get_nowait() for _ in range(told.qsize())] == [("x", "another one keeps the file")]
    await supervisor.stop_all()


async def test_stop_ends_a_task_during_its_work_and_during_its_pause(log: JsonLog) -> None:
    """Cancellation is never swallowed, neither in the work nor between two tries."""
    began, pausing = asyncio.Event(), asyncio.Event()

    class LongPause(VirtualClock):
        async def sleep(self, seconds: float) -> None:
            del seconds
            pausing.set()
            await asyncio.Event().wait()

    supervisor = Supervisor(LongPause(), Degraded(lambda *_: None), log)
    ended = []

    async def forever() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("forever")
            raise

    async def fails() -> None:
        raise OSError

    supervisor.start("forever", forever)
    supervisor.start("fails", fails)
    await asyncio.wait_for(asyncio.gather(began.wait(), pausing.wait()), 30)
    await asyncio.wait_for(supervisor.stop_all(), 30)
    assert ended == ["forever"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_one_failing_task_leaves_the_others_running(log: JsonLog) -> None:
    """A reader that fails again and again does not stop the next task."""
    supervisor = Supervisor(VirtualClock(), Degraded(lambda *_: None), log)
    beats, enough = 0, asyncio.Event()

    async def fails() -> None:
        raise RuntimeError

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            if beats == 50:
                enough.set()
            await asyncio.sleep(0)

    supervisor.start("fails", fails)
    supervisor.start("beat", beat)
    await asyncio.wait_for(enough.wait(), 30)
    await supervisor.stop_all()
