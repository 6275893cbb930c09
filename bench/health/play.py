"""Play one scenario and give a line for each judge."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from bench.health.judges import Judge, Sidecar
from bench.health.line import Line
from bench.health.scenario import Scenario
from bench.health.stage import Stage, Subject
from tests.lab.kit.wait import TooLateError, until

START_SECONDS: Final = 90.0
WELL_SECONDS: Final = 60.0
BEFORE_SECONDS: Final = 2.0


def play(stage: Stage, scenario: Scenario, files: Mapping[str, Path]) -> list[Line]:
    """Start a server, let it happen, and wait for what the judges say.

    Raises AssertionError where it could not be played: the server that should be well is gone, a judge gave up.
    """
    with stage.subject(scenario.casting(files)) as subject:
        judges = stage.judges()
        if scenario.act is not None:
            _settle(stage, subject)
        for judge in judges:
            judge.start()
        time.sleep(BEFORE_SECONDS)
        subject.go.touch()
        began = time.monotonic()
        try:
            if scenario.act is not None:
                scenario.act(stage, subject)
            _wait(scenario, subject, judges)
        finally:
            for judge in judges:
                judge.stop()
        if scenario.healthy:
            until(partial(subject.answers, WELL_SECONDS), WELL_SECONDS, "the server that should be well to answer")
    for judge in judges:
        assert not judge.error, judge.error
    return [_line(scenario, judge, began) for judge in judges if judge.name in scenario.judges]


def _line(scenario: Scenario, judge: Judge, began: float) -> Line:
    return Line(
        scenario=scenario.name,
        judge=judge.name,
        healthy=scenario.healthy,
        failed=judge.failed_s is not None,
        failed_after_s=None if judge.failed_s is None else round(judge.failed_s - began, 2),
        bound_s=scenario.bounds.get(judge.name),
        states=" > ".join(judge.states) if isinstance(judge, Sidecar) else "",
        slowest_answer_s=round(judge.slowest_seconds, 3) if isinstance(judge, Sidecar) else None,
        said=judge.said,
    )


def _settle(stage: Stage, subject: Subject) -> None:
    until(subject.answers, START_SECONDS, "the server to answer", pause_seconds=0.1)
    for name in ("b", "c"):
        until(partial(_is_well, stage, name), 120, f"sidecar {name} to find it well", pause_seconds=0.1)


def _is_well(stage: Stage, name: str) -> bool:
    return stage.state(name) in {"ok", "reclaiming"}


def _wait(scenario: Scenario, subject: Subject, judges: Sequence[Judge]) -> None:
    """Watch a well server for its time, at least until it has started; a hang until all have failed it or are late."""
    if not scenario.healthy:
        latest = time.monotonic() + max(scenario.bounds.values()) + 2.0
        asked = [judge for judge in judges if judge.name in scenario.bounds]
        while time.monotonic() < latest and any(judge.failed_s is None for judge in asked):
            time.sleep(0.2)
        return
    until_s = time.monotonic() + scenario.seconds
    while time.monotonic() < until_s and subject.lives():
        time.sleep(0.2)
        if scenario.act is None and scenario.name.startswith("start") and subject.answers():
            until_s = min(until_s, time.monotonic() + 3.0)
    if not subject.lives():
        raise TooLateError(f"{scenario.name}: the server that should be well is gone")
