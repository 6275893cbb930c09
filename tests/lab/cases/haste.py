"""Ends right after the start: before the sidecar's first reading, and before the guard's hand-over."""

from __future__ import annotations

from tests.lab.cases.stage import Stage, Way
from tests.lab.cases.verdicts import ended
from tests.lab.kit.wait import until


def case_killed_at_once(stage: Stage) -> None:
    """A program that does not fit at all is killed within milliseconds: cgroup_oom at the own level."""
    with stage.model("no-room", way=Way(command=("tail", "/dev/zero"))) as model:
        incident = ended(stage, model, "cgroup_oom")
        assert incident["level"] == model.group.path


def case_uncaught_exception_at_once(stage: Stage) -> None:
    """It fails before the guard's connection: application_exit at once, and the exception once its box is found."""
    with stage.model("at-once", "fail") as model:
        ended(stage, model, "application_exit", "high")
        until(lambda: "a load that fails" in stage.incident(model)["summary"], 30, "the exception to be named")
