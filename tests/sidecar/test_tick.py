"""Ticks in virtual time over real files: events, warnings, what is read when, and the cost of a steady model."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guard.kernel.reader import KeptFile, Reader
from guard.kernel.values import CgroupVersion
from guard.link.protocol import Pressure
from guard.model import Known
from sidecar.board import Board, OwnView
from sidecar.collect.kmsg import KernelLog
from sidecar.collect.node import NodeReader
from sidecar.collect.probe import Prober
from sidecar.endings import Endings
from sidecar.health.judge import JudgeMemory
from sidecar.hub import Hub
from sidecar.journal import Journal
from sidecar.outputs.log import JsonLog
from sidecar.outputs.recorder import Recorder
from sidecar.past import Past
from sidecar.refining import Refining
from sidecar.sample import LevelId, SightKind
from sidecar.settings import Settings
from sidecar.sight.levels import close_levels
from sidecar.sight.seen import SeenLevel, SeenModel
from sidecar.supervise import Degraded
from sidecar.tick import Ticker
from sidecar.watch import Watch
from sidecar.watches import Watches
from tests.sidecar.clocks import VirtualClock
from tests.sidecar.making import at
from tests.sidecar.trees import build

MIB = 1 << 20


class Stage:
    """One handed-over model whose level is made of plain files, and a ticker that the test drives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.board = Board(own=OwnView(started=at(0), last_tick=None, tick_seconds=1, ticks=0, degraded=()))
        self.told: list[Pressure] = []
        node = {"proc/meminfo": "MemTotal: 100 kB\nSwapFree: 0 kB\n", "proc/vmstat": "oom_kill 0\n"}
        reader = Reader(str(build(folder / "node", node)))
        hub = Hub(
            settings=Settings(dir=str(folder)),
            boot_id="boot",
            clock=self.clock,
            board=self.board,
            journal=Journal(self.board),
            degraded=Degraded(lambda *_: None),
            log=JsonLog(clock=self.clock),
            node=NodeReader(reader),
            kmsg=KernelLog(reader, self.clock),
            recorder=Recorder(folder / "record.sqlite", boot_id="boot"),
        )
        self.hub = hub
        watches = Watches("stand-in", self._make, lambda _: None)
        endings = Endings(hub, set(), Refining(hub, Past(self.board)))
        self.ticker = Ticker(hub, watches, endings, lambda _, notice: self.told.append(notice))
        self.hold(10 * MIB)
        self.seen = self._see()
        self.watch = watches.handed_over(self.seen, lambda *_: None)

    def hold(self, anon: int, *, limit: str = str(256 * MIB)) -> None:
        """Let the model hold so much memory."""
        files = {"memory.current": f"{anon}\n", "memory.max": f"{limit}\n", "memory.high": "max\n"}
        build(
            self.folder / "level", {**files, "memory.stat": f"anon {anon}\nshmem 0\n", "memory.events": "oom_kill 0\n"}
        )

    def run(self, seconds: float, each: Callable[[float], object] = lambda _: None) -> None:
        """Tick for so long, and call `each` with the seconds since the beginning before every tick."""
        began = self.clock.at_s
        while self.clock.at_s < began + seconds:
            each(self.clock.at_s - began)
            self.clock.at_s += self.ticker.tick()

    def kinds(self) -> list[str]:
        """Name the events so far, in order."""
        return [event.kind for event in self.board.events]

    def close(self) -> None:
        """Close what is open."""
        close_levels(self.seen.levels)
        self.hub.node.close()

    def _see(self) -> SeenModel:
        kept = {path.name: Reader().keep(str(path)) for path in (self.folder / "level").iterdir()}
        files = {name: file for name, file in kept.items() if isinstance(file, KeptFile)}
        level = SeenLevel(id=LevelId(1, 2), name="/m", depth=0, version=CgroupVersion.V2, files=files)
        return SeenModel(name="m", kind=SightKind.HANDOVER, levels=(level,), hidden_ancestors=False)

    def _make(self, name: str) -> Watch:
        prober = Prober(None, self.hub.settings.health, self.clock, lambda _: None)
        return Watch(name=name, prober=prober, ends={}, incidents=(), memory=JudgeMemory())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage with a model that holds 10 of 256 MiB."""
    made = Stage(tmp_path)
    yield made
    made.close()


def test_growth_is_warned_of_seconds_before_the_limit(stage: Stage) -> None:
    """At 20 MiB/s from 10 MiB the limit is met after 12.3 s; the warning comes 8 s before, and guards hear."""
    stage.run(12.0, lambda seconds: stage.hold(int((10 + 20 * seconds) * MIB)))
    warnings = [event for event in stage.board.events if event.kind == "warning"]
    began = warnings[0].at.monotonic_s - 1000.0
    assert warnings[0].fields["detector"] == "time_to_limit"
    assert 12.3 - began >= 8.0
    assert [notice.level for notice in stage.told[:2]] == ["warning", "critical"]
    assert stage.board.models["m"].warnings["time_to_limit"] >= 1


def test_a_warning_is_over_once_growth_stops(stage: Stage) -> None:
    """A model that stops growing is told so, and so are its guards."""
    stage.run(8.0, lambda seconds: stage.hold(int((10 + 20 * seconds) * MIB)))
    stage.run(15.0)
    assert stage.kinds()[-1] == "warning_over"
    assert stage.told[-1].level == "none"
    assert stage.board.models["m"].time_to_limit_seconds == Known(float("inf"))


def test_a_steady_model_is_glanced_at_and_not_thought_about(stage: Stage) -> None:
    """Ticks between full ones add no point to the history while nothing grows."""
    stage.run(5.0)
    assert stage.board.own.ticks > 30
    assert stage.watch.close_history is not None
    assert len(stage.watch.close_history.points) <= 7


def test_a_resized_limit_is_an_event_within_a_second(stage: Stage) -> None:
    """An in-place resize is told once, with the new limit, and the old headroom is not used any longer."""
    stage.run(3.0)
    stage.hold(10 * MIB, limit=str(512 * MIB))
    stage.run(1.5)
    changes = [event for event in stage.board.events if event.kind == "limit_changed"]
    assert [event.fields["observed"] for event in changes] == [512.0 * MIB]
    assert stage.watch.room_bytes == 502 * MIB


def test_a_model_without_a_limit_is_looked_at_once_a_second(stage: Stage) -> None:
    """Where no limit is set there is nothing to hurry for."""
    stage.hold(10 * MIB, limit="max")
    stage.run(10.0)
    assert stage.board.own.ticks <= 11


def test_unreadable_files_give_an_unknown_state_and_no_trouble(stage: Stage) -> None:
    """Damage of every file is named as missing input; ticks and the other answers go on."""
    stage.run(2.0)
    for path in (stage.folder / "level").iterdir():
        path.write_bytes(b"")
    stage.run(2.0)
    view = stage.board.models["m"]
    assert view.judgement.live
    assert any("time_to_limit" in str(answer) and "missing" in str(answer) for answer in view.answers)
    assert stage.board.own.degraded == ()


@pytest.mark.parametrize("jump_s", [10 * 365 * 86400.0, -999.0])
def test_a_wall_clock_that_jumps_moves_nothing(stage: Stage, jump_s: float) -> None:
    """Growth is warned of as early, and nothing else is said, when the wall clock is set in the middle of it."""

    def grow(seconds: float) -> None:
        stage.clock.wall_offset_s = jump_s if seconds > 2.0 else 0.0
        stage.hold(int((10 + 20 * seconds) * MIB))

    stage.run(12.0, grow)
    warnings = [event for event in stage.board.events if event.kind == "warning"]
    assert 12.3 - (warnings[0].at.monotonic_s - 1000.0) >= 8.0
    assert stage.board.own.last_tick is not None
    assert stage.board.own.last_tick.wall_s - stage.board.own.last_tick.monotonic_s == jump_s
    assert stage.board.own.degraded == ()


def test_one_model_in_trouble_does_not_stop_the_others(stage: Stage) -> None:
    """A model whose level list is broken is named, and the next one is still judged."""
    second = SeenModel(name="other", kind=SightKind.HANDOVER, levels=stage.seen.levels, hidden_ancestors=False)
    broken = stage.watch
    other = stage.ticker._watches.handed_over(second, lambda *_: None)
    assert broken.reader is not None
    broken.reader.levels = (None,)  # type: ignore[assignment]  # what a bug of ours would do
    stage.run(2.0)
    assert any(words.startswith("model m:") for words in stage.board.own.degraded)
    assert other.judgement is not None
    assert "other" in stage.board.models


async def ticked(stage: Stage, times: int) -> None:
    """Wait, half a minute at most, for so many ticks more, while the clock goes on."""
    wanted = stage.ticker._ticks + times
    async with asyncio.timeout(30):
        while stage.ticker._ticks < wanted:
            stage.clock.at_s += 0.1
            await asyncio.sleep(0.01)


async def test_ticks_go_on_until_one_fails(stage: Stage) -> None:
    """What a failing tick raises comes out of `run`, for the supervisor to start it anew."""
    running = asyncio.create_task(stage.ticker.run())
    await ticked(stage, 4)
    stage.ticker._watches = None  # type: ignore[assignment]  # what a bug of ours would do
    async with asyncio.timeout(30):
        with pytest.raises(TypeError):
            await running


async def test_a_cancelled_ticker_leaves_no_timer(stage: Stage) -> None:
    """After its task was cancelled nothing ticks any more."""
    running = asyncio.create_task(stage.ticker.run())
    await ticked(stage, 2)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    timers = vars(asyncio.get_running_loop())["_scheduled"]
    assert [timer for timer in timers if not timer.cancelled()] == []
