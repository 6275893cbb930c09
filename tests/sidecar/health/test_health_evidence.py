"""From samples to evidence: progress of kernel counters and loop tokens, pressure, work in flight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from guard.model import Known, OperationKind, Unknown, Why
from sidecar.health.evidence import gather
from sidecar.health.values import NO_PROBE, HealthEvidence, Pressure, Progress
from sidecar.history import History
from sidecar.sample import Sample
from tests.sidecar import making as make
from tests.sidecar.making import MIB

MOVING, STILL = Known(Progress.MOVING), Known(Progress.STILL)


def watched(work: Callable[[float], make.Work], seconds: float = 12.0) -> HealthEvidence:
    """Sample twice a second and gather at the end."""
    history: History | None = None
    for tick in range(int(seconds * 2) + 1):
        sample = make.sample(tick / 2, make.level(make.V2()), work=work(tick / 2))
        history = History.start(sample) if history is None else history.append(sample)
    assert history is not None
    return gather(history)


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda now: make.Work(cpu_ticks=int(now * 50)), id="cpu"),
        pytest.param(lambda now: make.Work(majflt=int(now * 100)), id="faults"),
        pytest.param(lambda now: make.Work(read_bytes=int(now * MIB)), id="reads"),
        pytest.param(lambda now: make.Work(rss=int((50 + now) * MIB)), id="memory-grows"),
        pytest.param(lambda now: make.Work(rss=int((90 - now) * MIB)), id="memory-shrinks"),
    ],
)
def test_each_kernel_counter_shows_progress(work: Callable[[float], make.Work]) -> None:
    """CPU time, served faults, bytes read and a changing RSS each show that the processes do something."""
    assert watched(work).kernel_progress == MOVING


def test_a_heartbeat_is_no_progress() -> None:
    """The odd clock tick of an idle thread does not show progress."""
    assert watched(lambda now: make.Work(cpu_ticks=int(now))).kernel_progress == STILL


def test_progress_is_forgotten() -> None:
    """Work that ended more than a window ago is standstill now."""
    assert watched(lambda now: make.Work(cpu_ticks=int(min(now, 3) * 100))).kernel_progress == STILL


def test_one_sample_shows_no_progress() -> None:
    """Progress needs two samples; until then it is unknown and not standstill."""
    found = watched(lambda _: make.Work(), 0.0).kernel_progress
    assert isinstance(found, Unknown)
    assert found.why is Why.NOT_SAMPLED


def test_loop_tokens_show_a_turning_loop() -> None:
    """A beat named loop that rises is progress of the serving loop."""
    assert watched(lambda now: make.Work(beats={"loop": int(now * 10)})).loop_progress == MOVING


@pytest.mark.parametrize("name", ["loop", "loop.engine"])
def test_silent_loop_tokens_are_a_standstill(name: str) -> None:
    """A loop that has not ticked for the whole window stands still."""
    assert watched(lambda now: make.Work(beats={name: int(min(now, 1) * 10)})).loop_progress == STILL


def test_silence_is_not_concluded_early() -> None:
    """A loop that was watched for too short a time is unknown."""
    found = watched(lambda _: make.Work(beats={"loop": 3}), 5.0).loop_progress
    assert isinstance(found, Unknown)
    assert found.why is Why.NOT_SAMPLED


def test_other_beats_prove_progress_but_no_standstill() -> None:
    """Requests that are done show progress; an idle server has none to count, so their absence says nothing."""
    assert watched(lambda now: make.Work(beats={"requests": int(now)})).loop_progress == MOVING
    assert isinstance(watched(lambda _: make.Work(beats={"requests": 9})).loop_progress, Unknown)


@pytest.mark.parametrize("other", ["asyncio", "requests"])
def test_beside_a_declared_loop_no_other_beat_counts(other: str) -> None:
    """An event loop that goes on accepting does not stand in for the serving loop, nor does what a thread counts."""
    found = watched(lambda now: make.Work(beats={"loop": int(min(now, 1) * 10), other: int(now * 2)}))
    assert (found.loop_progress, found.loop_declared, found.loop_moved) == (STILL, True, False)


def test_other_beats_declare_no_loop() -> None:
    """What shows progress where it moves is not known for the serving loop by that."""
    found = watched(lambda now: make.Work(beats={"requests": int(now * 2)}))
    assert (found.loop_progress, found.loop_declared, found.loop_moved) == (MOVING, False, True)


def test_without_the_guard_the_loop_is_unknown() -> None:
    """No black box, no tokens: unknown with the reason."""
    found = watched(lambda _: make.Work()).loop_progress
    assert isinstance(found, Unknown)
    assert found.why is Why.MISSING


def test_a_load_that_counts_moves() -> None:
    """New bytes done are progress of the operation."""
    found = watched(lambda now: make.Work(operations=(make.load("torch.load", 1 << 30, done=int(now * MIB)),)))
    assert [one.progress for one in found.in_flight] == [MOVING]


def test_a_load_that_has_just_begun_moves() -> None:
    """An operation that was not there a window ago is progress by itself."""
    found = watched(
        lambda now: make.Work(
            box=True, operations=(make.load("torch.load", 1 << 30, started=10.0),) if now >= 10 else ()
        )
    )
    assert [one.progress for one in found.in_flight] == [MOVING]


def test_a_silent_load_stands_still() -> None:
    """An operation that said nothing for a window stands still by its own words."""
    found = watched(lambda _: make.Work(operations=(make.load("torch.load", 1 << 30),)))
    assert [one.progress for one in found.in_flight] == [STILL]


def test_a_finished_load_is_not_in_flight() -> None:
    """Done is done."""
    done = replace(make.load("torch.load", 1 << 30), done=True)
    assert watched(lambda _: make.Work(operations=(done,))).in_flight == ()


def test_every_operation_in_flight_is_told() -> None:
    """Of several each is judged by itself; the one that spoke last is told first."""
    old, new = make.load("torch.load", 1, started=1.0), make.load("my.loader", 1, started=2.0)
    found = watched(lambda _: make.Work(operations=(old, new))).in_flight
    assert [one.operation.label for one in found] == ["my.loader", "torch.load"]
    assert len({one.key for one in found}) == 2


def test_the_end_of_the_main_process_is_known() -> None:
    """`alive` is what the pidfd of the main process says, and its session names the life."""
    found = watched(lambda now: make.Work(alive=now < 11))
    assert Known(value=False) == found.alive
    assert found.session == "s1"


def without_processes() -> Sample:
    """Make a sample of a model whose processes are not seen."""
    return replace(make.sample(0.0), processes=())


def test_nothing_seen_is_unknown_everywhere() -> None:
    """A model seen through its probe alone has no other evidence, and nothing is made up."""
    found = gather(History.start(without_processes()))
    for reading in (found.alive, found.pressure, found.kernel_progress, found.loop_progress):
        assert isinstance(reading, Unknown)
    assert found.in_flight == ()
    assert found.probe == NO_PROBE


def test_no_stall_is_no_pressure() -> None:
    """Pressure files that do not move are known to say none."""
    assert Known(Pressure.NONE) == watched(lambda _: make.Work()).pressure


def test_no_pressure_files_is_not_no_pressure() -> None:
    """Without stall times the absence of faults is not taken for calm."""
    history: History | None = None
    for tick in range(20):
        sample = make.sample(tick / 2, make.level(make.V1()))
        history = History.start(sample) if history is None else history.append(sample)
    assert history is not None
    assert isinstance(gather(history).pressure, Unknown)


def test_a_process_without_a_status_can_still_move() -> None:
    """RSS that cannot be read says nothing; the other counters do."""
    history: History | None = None
    for tick in range(20):
        sample = make.sample(tick / 2, work=make.Work(cpu_ticks=tick * 50))
        processes = tuple(replace(one, status=make.NOT_SAMPLED) for one in sample.processes)
        sample = replace(sample, processes=processes)
        history = History.start(sample) if history is None else history.append(sample)
        if tick == 10:
            assert gather(history).kernel_progress == MOVING
    assert history is not None
    still = history
    for tick in range(20, 40):
        sample = make.sample(tick / 2, work=make.Work(cpu_ticks=950))
        still = still.append(
            replace(sample, processes=tuple(replace(p, status=make.NOT_SAMPLED) for p in sample.processes))
        )
    assert gather(still).kernel_progress == STILL


def test_a_process_that_has_just_appeared_is_not_still() -> None:
    """A new worker has no rate yet: unknown, while the others stand still."""
    worker = make.Work(life=replace(make.LIFE, session="s2", pid=101), main=False)
    history: History | None = None
    for tick in range(20):
        sample = make.sample(tick / 2)
        if tick == 19:
            sample = replace(sample, processes=(*sample.processes, worker.sample()))
        history = History.start(sample) if history is None else history.append(sample)
    assert history is not None
    assert isinstance(gather(history).kernel_progress, Unknown)


def test_a_silent_load_is_not_concluded_early() -> None:
    """An operation watched for a second only is unknown, not still."""
    found = watched(lambda _: make.Work(operations=(make.load("torch.load", 1 << 30),)), 1.0)
    assert all(isinstance(one.progress, Unknown) for one in found.in_flight)
    assert found.in_flight


def test_an_event_loop_that_runs_and_is_silent_stands_still_undeclared() -> None:
    """The guard's own tick of an asyncio loop tells a standstill while a loop runs, but not that it is what serves."""
    found = watched(lambda now: make.Work(beats={"asyncio.begun": 1, "asyncio": int(min(now, 1))}))
    assert found.loop_progress == STILL
    assert not found.loop_declared


def test_an_event_loop_that_has_ended_says_nothing() -> None:
    """A loop that ran for the start alone is not missed."""
    found = watched(lambda _: make.Work(beats={"asyncio.begun": 1, "asyncio": 1, "asyncio.ended": 1}))
    assert isinstance(found.loop_progress, Unknown)


def test_a_token_is_told_at_the_tick_it_came() -> None:
    """The window still knows of an old token, but patience runs from the tick at which the last one came."""
    found = watched(lambda now: make.Work(beats={"loop": int(min(now, 8) * 10)}))
    assert found.loop_progress == MOVING
    assert not found.loop_moved
    assert watched(lambda now: make.Work(beats={"loop": int(now * 10)})).loop_moved


def _throttled(lines: Callable[[float], dict[str, int]]) -> tuple[str, ...]:
    """Give the notes of a model whose cpu.stat says so."""
    history: History | None = None
    for tick in range(20):
        level = make.level(make.V2())
        level = replace(level, memory=replace(level.memory, cpu_stat=Known(lines(tick / 2))))
        sample = make.sample(tick / 2, level)
        history = History.start(sample) if history is None else history.append(sample)
    assert history is not None
    return gather(history).notes


def test_a_cpu_limit_that_holds_it_back_is_said() -> None:
    """Throttled time of cpu.stat is told as a share, in the units of v2 and of v1; none and little say nothing."""
    for lines in (
        lambda now: {"throttled_usec": int(400_000 * now)},
        lambda now: {"throttled_time": int(400_000_000 * now)},
    ):
        assert _throttled(lines) == ("held back by its CPU limit for 40.0 % of the last 5 s",)
    assert _throttled(lambda now: {"throttled_usec": int(10_000 * now)}) == ()
    assert _throttled(lambda _: {"usage_usec": 5}) == ()


@pytest.mark.parametrize(("state", "stopped"), [("T", True), ("t", True), ("D", False), ("Z", False)])
def test_the_state_of_the_main_process_is_said(state: str, stopped: bool) -> None:  # noqa: FBT001 - a case
    """Stopped, waiting in the kernel, first thread ended: told with the reasons; stopped is a standstill."""
    sample = make.sample(0.0)
    (main,) = sample.processes
    assert isinstance(main.stat, Known)
    main = replace(main, stat=Known(replace(main.stat.value, state=state)))
    found = gather(History.start(replace(sample, processes=(main,))))
    assert found.stopped is stopped
    assert any(f"({state})" in note for note in found.notes)


def test_an_engine_is_a_living_child_with_beats_or_a_load() -> None:
    """A helper child without either is no engine, nor for its event loop alone, and neither is the main process."""
    engine = make.Work(life=replace(make.LIFE, session="s2", pid=101), main=False, beats={"tokens": 1})
    unasked = {"asyncio": 9, "asyncio.begun": 1}
    helper = make.Work(life=replace(make.LIFE, session="s3", pid=102), main=False, beats=unasked)
    sample = make.sample(0.0, work=make.Work(beats={"loop": 1}))
    processes = tuple(
        replace(one, box=Known(replace(one.box.value, parent_session="s1")))
        for one in (engine.sample(), helper.sample())
        if isinstance(one.box, Known)
    )
    assert len(processes) == 2
    found = gather(History.start(replace(sample, processes=(*sample.processes, *processes))))
    assert found.engines == ("s1",)
    assert found.loaded == ()


def test_a_process_that_has_loaded_is_no_mere_front_end() -> None:
    """A load counts, also once it is done; declared work does not."""
    load = make.load("torch.load", 1 << 30)
    for one, expected in (
        (load, ("s1",)),
        (replace(load, done=True), ("s1",)),
        (replace(load, kind=OperationKind.BUSY), ()),
    ):
        assert watched(lambda _, one=one: make.Work(operations=(one,)), 0.0).loaded == expected
