"""Many models of one sidecar, as on a node of a home server or in a test farm, and all of them end at once."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from tests.lab.cases.stage import Stage
from tests.lab.cases.verdicts import ended

_WAYS: Final = (
    ("gulp size=400", "cgroup_oom"),
    ("segfault", "crash_signal"),
    ("abort", "crash_signal"),
    ("leave code=3", "application_exit"),
    ("refuse", "host_allocation_failure"),
)
_EACH: Final = 3


def case_fifteen_models_at_once(stage: Stage) -> None:
    """Fifteen models end at the same moment in five ways: each gets its own verdict, and each within the second."""
    wanted = {f"crowd-{number}-{load.split()[0]}": (load, kind) for number in range(_EACH) for load, kind in _WAYS}
    cue = stage.cue("crowd")
    with ExitStack() as running:
        models = [
            (running.enter_context(stage.model(name, f"{load} when={cue}")), kind)
            for name, (load, kind) in wanted.items()
        ]
        for model, _ in models:
            stage.wait_guarded(model)
        cue.touch()
        for model, kind in models:
            ended(stage, model, kind, "high")
