"""Relief in this process: when callbacks run, in which thread, what is measured. Real threads, real memory."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from queue import Queue

import pytest

from guard.fence import troubles
from guard.link.protocol import Pressure, Relieved
from guard.pressure import CALM
from guard.relief import Relief
from tests.lab.kit.wait import until

MIB = 1 << 20


class Stage:
    """A relief of its own, with what came out of it."""

    def __init__(self) -> None:
        self.told: Queue[Relieved] = Queue()
        self.heard: Queue[tuple[str, str]] = Queue()
        self.relief = Relief(self.told.put)

    def callback(self, name: str) -> Callable[[Pressure], object]:
        """Make a callback that says its name and the level."""
        return lambda notice: self.heard.put((name, notice.level))

    def next(self) -> tuple[str, str]:
        """Wait for the next callback."""
        return self.heard.get(timeout=30)

    def press(self, level: str, holds_seconds: float = 60.0) -> None:
        """Say a level as the sidecar does."""
        self.relief.hear("sidecar", level, f"because of {level}", holds_seconds)

    def ended(self) -> bool:
        """Whether its thread is gone."""
        return not any(thread.name == "oomguard-relief" for thread in threading.enumerate())


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Give a stage, and see that its thread ends with the pressure."""
    made = Stage()
    assert made.ended()
    yield made
    made.relief.calm()
    until(made.ended, 30, "the relief thread to end with the pressure")


def test_a_level_is_reached_and_passed(stage: Stage) -> None:
    """One for "warning" runs for warning and worse, one for "critical" waits for it; the last word of each is given."""
    stage.relief.add(stage.callback("soft"), "soft", "warning", 0.05)
    stage.relief.add(stage.callback("hard"), "hard", "critical", 60.0)
    stage.press("warning")
    assert stage.next() == ("soft", "warning")
    stage.press("critical")
    seen = {stage.next() for _ in range(20)}
    assert seen - {("soft", "warning")} == {("soft", "critical"), ("hard", "critical")}


def test_cooldown(stage: Stage) -> None:
    """An action runs again while pressure lasts, never sooner than its cooldown, whatever comes in between."""
    stage.relief.add(stage.callback("often"), "often", "warning", 0.2)
    stage.relief.add(stage.callback("once"), "once", "warning", 1000.0)
    for level in ("warning", "none", "critical", "none", "warning"):
        stage.press(level)
    runs = [stage.told.get(timeout=30) for _ in range(4)]
    assert sorted(run.action for run in runs) == ["often", "often", "often", "once"]


def test_changes_of_level(stage: Stage) -> None:
    """One without a level hears of each change, in order and with its reason, and not of repetitions."""
    reasons: Queue[Pressure] = Queue()
    stage.relief.add(reasons.put, "all", None, 0.0)
    for level in ("warning", "warning", "critical", "critical", "none", "none"):
        stage.press(level)
    heard = [reasons.get(timeout=30) for _ in range(3)]
    assert heard == [Pressure(level, f"because of {level}") for level in ("warning", "critical", "none")]
    until(stage.ended, 30, "the relief thread to end with the pressure")
    assert reasons.empty()


def test_silence_ends_the_pressure(stage: Stage) -> None:
    """A word counts for as long as it says; then the level is none again, and that is told."""
    changes: Queue[Pressure] = Queue()
    stage.relief.add(changes.put, "all", None, 0.0)
    stage.press("critical", holds_seconds=0.2)
    assert stage.relief.pressing().level == "critical"
    assert [changes.get(timeout=30).level for _ in range(2)] == ["critical", "none"]
    assert stage.relief.pressing().level == "none"


def test_callbacks_run_in_a_thread_of_the_guard(stage: Stage) -> None:
    """They run in one thread that takes no signal; the caller does not wait for them."""
    seen: Queue[tuple[str, set[signal.Signals]]] = Queue()
    gate = threading.Event()

    def slow(_notice: Pressure) -> None:
        gate.wait(30)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        seen.put((threading.current_thread().name, {one for one in mask if isinstance(one, signal.Signals)}))

    stage.relief.add(slow, "slow", "warning", 60.0)
    stage.press("warning")  # returns although the callback waits
    until(lambda: stage.relief.running == "slow", 30, "the callback to run")
    gate.set()
    name, mask = seen.get(timeout=30)
    assert name == "oomguard-relief"
    assert signal.SIGTERM in mask


def test_a_broken_action_stops_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that raises is told with its error, those after it run, and it runs again after its cooldown."""
    monkeypatch.setenv("OOMGUARD_FENCE", "")

    def broken(_notice: Pressure) -> None:
        raise OSError("no such cache")

    stage.relief.add(broken, "broken", "warning", 0.05)
    stage.relief.add(stage.callback("after"), "after", "warning", 60.0)
    stage.press("warning")
    assert stage.next() == ("after", "warning")
    told = [stage.told.get(timeout=30) for _ in range(3)]
    assert [run.said for run in told if run.action == "broken"] == ["OSError: no such cache"] * 2


class _WordlessError(Exception):
    """It has no text."""

    def __str__(self) -> str:
        raise OSError("mute")


@pytest.mark.parametrize("level", ["warning", None])
@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), _WordlessError()])
def test_whatever_a_callback_raises(
    raised: BaseException, level: str | None, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sys.exit()` in a callback, or an error without a text, ends no thread: who comes after it hears as well."""
    monkeypatch.setenv("OOMGUARD_FENCE", "")
    troubles.latest.clear()

    def broken(_notice: Pressure) -> None:
        raise raised

    stage.relief.add(broken, "broken", level, 60.0)
    stage.relief.add(stage.callback("after"), "after", level, 60.0)
    stage.press("warning")
    assert stage.next() == ("after", "warning")
    assert any("on_pressure broken" in trouble for trouble in troubles.latest)


def test_a_coroutine_is_said(stage: Stage) -> None:
    """A callable that turns out to give a coroutine is noted, without a warning of Python's."""

    async def later(_notice: Pressure) -> None:
        """Never run."""

    stage.relief.add(functools.partial(later), "later", "warning", 60.0)
    stage.press("warning")
    assert stage.told.get(timeout=30).said == ""
    assert "on_pressure later: it gave back a coroutine, which nobody awaits" in troubles.latest


def test_what_was_given_back_is_measured(stage: Stage) -> None:
    """The effect names the action, the level and about as many bytes as the process let go of."""
    held = [bytearray(64 * MIB)]
    stage.relief.add(lambda _notice: held.clear(), "drop", "critical", 60.0)
    stage.press("critical")
    effect = stage.told.get(timeout=30)
    assert (effect.action, effect.level, effect.said) == ("drop", "critical", "")
    assert effect.anon_freed_bytes is not None
    assert 48 * MIB < effect.anon_freed_bytes < 128 * MIB
    assert effect.gpu_freed_bytes is None, "CUDA is not in use here"
    assert list(stage.relief.effects) == [effect]


def test_one_that_comes_late_runs_at_once(stage: Stage) -> None:
    """An action that is added while there is pressure does not wait for the next word."""
    stage.press("critical")
    assert stage.ended(), "nobody listens, so there is no thread"
    stage.relief.add(stage.callback("late"), "late", "warning", 60.0)
    assert stage.next() == ("late", "critical")


def test_the_same_callback_is_there_once(stage: Stage) -> None:
    """Adding it again changes nothing."""
    callback = stage.callback("one")
    for _ in range(3):
        stage.relief.add(callback, "one", "warning", 1000.0)
    stage.press("warning")
    assert stage.next() == ("one", "warning")
    stage.press("none")
    until(stage.ended, 30, "the relief thread to end with the pressure")
    assert stage.heard.empty()
    assert stage.relief.pressing().level == CALM.level
