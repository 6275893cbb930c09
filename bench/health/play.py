"""Play one scenario and give a line for each judge."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.health.judges import Sidecar
from bench.health.scenarios import Scenario
from bench.health.stage import Stage, Subject
from tests.lab.kit.wait import TooLateError, until

START_SECONDS = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One judge's answer to one scenario. `failed_after_s` counts from the fault; negative: before it."""

    scenario: str
    judge: str
    healthy: bool
    failed: bool
    failed_after_s: float | None
    bound_s: float | None
    states: str = ""
    slowest_answer_s: float | None = None
    said: str = ""

    @property
    def right(self) -> bool:
        """Whether a well server was left alone, or a hang failed in time and not before it happened."""
        if self.healthy or not self.failed:
            return self.healthy and not self.failed
        assert self.failed_after_s is not None
        assert self.bound_s is not None
        return 0 <= self.failed_after_s <= self.bound_s

    def document(self) -> dict[str, Any]:
        """Give it as JSON."""
        return {**asdict(self), "right": self.right}


def play(stage: Stage, scenario: Scenario, files: Mapping[str, Path]) -> list[Line]:
    """Start a server, let it happen, and wait for what the judges say."""
    with stage.subject(scenario.casting(files)) as subject:
        judges = stage.judges()
        if scenario.act is not None:
            _settle(stage, subject)
        for judge in judges:
            judge.start()
        time.sleep(2.0 if scenario.act is not None else 0.0)
        began = time.monotonic()
        try:
            if scenario.act is not None:
                scenario.act(stage, subject)
            _wait(scenario, subject, judges)
        finally:
            for judge in judges:
                judge.stop()
    return [
        Line(
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
        for judge in judges
        if judge.name in scenario.judges
    ]


def _settle(stage: Stage, subject: Subject) -> None:
    until(subject.answers, START_SECONDS, "the server to answer", pause_seconds=0.1)
    for name in ("b", "c"):
        until(partial(_is_well, stage, name), 20, f"sidecar {name} to find it well")


def _is_well(stage: Stage, name: str) -> bool:
    return stage.state(name) in {"ok", "reclaiming"}


def _wait(scenario: Scenario, subject: Subject, judges: tuple[Any, ...]) -> None:
    """Watch a well server for its time, at least until it has started; a hang until all have failed it or are late."""
    if not scenario.healthy:
        latest = time.monotonic() + max(scenario.bounds.values()) + 2.0
        asked = [judge for judge in judges if judge.name in scenario.bounds]
        while time.monotonic() < latest and any(judge.failed_s is None for judge in asked):
            time.sleep(0.2)
        return
    until_s = time.monotonic() + scenario.seconds
    while time.monotonic() < until_s:
        time.sleep(0.2)
        if scenario.act is None and scenario.name.startswith("start") and subject.answers():
            until_s = min(until_s, time.monotonic() + 3.0)
    if not subject.group.pids():
        raise TooLateError(f"{scenario.name}: the server that should be well is gone")
