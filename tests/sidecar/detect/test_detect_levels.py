"""What single levels say: throttling, changed limits, shared memory, the v1 freeze."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from guard.model import Unknown, Why
from sidecar.detect import levels
from sidecar.detect.run_all import DETECTORS, run_all
from sidecar.detect.values import Answer, CannotTell, Finding, Quiet, Severity
from sidecar.history import History
from sidecar.sample import LevelSample
from tests.sidecar import making as make
from tests.sidecar.making import MIB


def history(*levels_by_tick: LevelSample) -> History:
    """Sample one level once a second."""
    made = History.start(make.sample(0.0, levels_by_tick[0]))
    for tick, level in enumerate(levels_by_tick[1:], start=1):
        made = made.append(make.sample(float(tick), level))
    return made


def only(answers: tuple[Answer, ...]) -> Finding:
    """Give the one finding."""
    assert len(answers) == 1
    assert isinstance(answers[0], Finding)
    return answers[0]


def test_throttling_at_high_is_found() -> None:
    """A model that is throttled again and again at memory.high is named with the limit."""
    made = [make.level(make.V2(high=str(60 * MIB), events={"high": 66 * tick})) for tick in range(6)]
    found = only(levels.high_throttling(history(*made)))
    assert found.observed == pytest.approx(66)
    assert "60.0 MiB" in found.text


def test_a_passing_throttle_is_quiet() -> None:
    """One event in five seconds is no throttling."""
    made = [make.level(make.V2(high=str(60 * MIB), events={"high": tick // 5})) for tick in range(6)]
    assert levels.high_throttling(history(*made)) == (Quiet("high_throttling"),)


@pytest.mark.parametrize("made", [make.V2(), make.V1()])
def test_without_memory_high_there_is_no_throttling(made: make.V2 | make.V1) -> None:
    """No memory.high set, or a version without it: quiet, not blind."""
    assert levels.high_throttling(history(make.level(made))) == (Quiet("high_throttling"),)


def test_throttling_needs_the_counter() -> None:
    """With memory.high set and no events file the detector cannot tell."""
    level = make.level(make.V2(high=str(60 * MIB)))
    gone = Unknown(Why.DENIED, "memory.events")
    blind = replace(level, memory=replace(level.memory, events=gone))
    assert levels.high_throttling(history(blind, blind)) == (CannotTell("high_throttling", (gone,)),)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("268435456", "536870912", "256.0 MiB to 512.0 MiB"),
        ("max", "268435456", "unlimited to 256.0 MiB"),
        ("268435456", "max", "256.0 MiB to unlimited"),
    ],
)
def test_a_changed_limit_is_told(before: str, after: str, words: str) -> None:
    """An in-place resize is told with old and new limit; unlimited is a word, not a number."""
    found = only(levels.limit_changed(history(make.level(make.V2(limit=before)), make.level(make.V2(limit=after)))))
    assert words in found.text
    assert found.severity is Severity.NOTICE
    assert found.observed == (math.inf if after == "max" else float(after))


def test_a_new_life_of_a_level_has_not_changed() -> None:
    """A cgroup made anew with another limit is another one, not a resized one."""
    made = make.level(make.V2(limit="1048576")), make.level(make.V2(limit="2097152"), inode=99)
    assert levels.limit_changed(history(*made)) == (Quiet("limit_changed"),)


def test_a_limit_that_becomes_unreadable_has_not_changed() -> None:
    """Unknown is no limit, so nothing has changed."""
    level = make.level(make.V2(limit="1048576"))
    blind = replace(level, memory=replace(level.memory, max_bytes=Unknown(Why.DENIED, "memory.max")))
    assert levels.limit_changed(history(level, blind)) == (Quiet("limit_changed"),)


def test_shared_memory_is_counted_and_named() -> None:
    """A tmpfs that fills a quarter of the limit is told, with where such memory comes from."""
    found = only(levels.shared_memory(history(make.level(make.V2(shmem=100 * MIB, limit=str(256 * MIB))))))
    assert "100.0 MiB of the 256.0 MiB" in found.text
    assert "/dev/shm" in found.text


@pytest.mark.parametrize("made", [make.V2(shmem=10 * MIB, limit=str(256 * MIB)), make.V2(shmem=1 << 40)])
def test_little_shared_memory_is_quiet(made: make.V2) -> None:
    """A small share of the limit, or no limit at all, is nothing to tell."""
    assert levels.shared_memory(history(make.level(made))) == (Quiet("shared_memory"),)


def test_the_v1_freeze_is_found() -> None:
    """Out of memory with the OOM killer off, the tasks sleep for ever: a hang that is memory."""
    found = only(levels.oom_freeze(history(make.level(make.V1(under_oom=1, oom_kill_disable=1)))))
    assert found.severity is Severity.CRITICAL


@pytest.mark.parametrize("made", [make.V1(under_oom=1), make.V1(oom_kill_disable=1), make.V2()])
def test_a_kill_under_way_is_no_freeze(made: make.V1 | make.V2) -> None:
    """Under OOM with the killer on is a kill under way; the killer off with memory left is nothing yet."""
    assert levels.oom_freeze(history(make.level(made))) == (Quiet("oom_freeze"),)


def test_every_detector_answers_without_any_level() -> None:
    """A model whose cgroup is not seen gets an answer from every detector, and none of them is a finding."""
    answers = run_all(History.start(make.sample(0.0)))
    assert len({answer.detector for answer in answers}) == len(DETECTORS)
    assert not [answer for answer in answers if isinstance(answer, Finding)]
    blind = {answer.detector for answer in answers if isinstance(answer, CannotTell)}
    assert {"time_to_limit", "reclaim", "high_throttling", "shared_memory", "oom_freeze"} <= blind


def test_a_root_without_the_controller_has_no_limits() -> None:
    """The root of v2 has neither memory.max nor memory.high: nothing to tell, and nothing missing."""
    level = make.level(make.V2())
    gone = Unknown(Why.MISSING, "memory.max")
    root = history(replace(level, memory=replace(level.memory, max_bytes=gone, high_bytes=gone)))
    assert levels.high_throttling(root) == (Quiet("high_throttling"),)
    assert levels.shared_memory(root) == (Quiet("shared_memory"),)


def test_shared_memory_needs_memory_stat() -> None:
    """With a limit and no memory.stat the detector cannot tell."""
    level = make.level(make.V2(limit=str(256 * MIB)))
    gone = Unknown(Why.DENIED, "memory.stat")
    blind = history(replace(level, memory=replace(level.memory, stat=gone)))
    assert levels.shared_memory(blind) == (CannotTell("shared_memory", (gone,)),)


def test_the_freeze_needs_oom_control() -> None:
    """On v1 without memory.oom_control the detector cannot tell."""
    level = make.level(make.V1())
    gone = Unknown(Why.DENIED, "memory.oom_control")
    blind = history(replace(level, memory=replace(level.memory, oom_control=gone)))
    assert levels.oom_freeze(blind) == (CannotTell("oom_freeze", (gone,)),)
