"""The sidecar itself dies in the middle; the next one goes on with the record."""

from __future__ import annotations

import os
import signal

from tests.lab.cases.stage import Stage
from tests.lab.cases.verdicts import ended
from tests.lab.kit.wait import PACE, until


def case_sidecar_killed_in_the_middle() -> None:
    """After kill -9 the next sidecar knows the old incident, sees the living model again and records its end."""
    with Stage() as stage, stage.model("survivor", "sleep") as survivor:
        with stage.model("before", f"leave code=4 when={stage.cue('before')}") as before:
            stage.give_cue(before)
            old = stage.incident(before)
        stage.wait_seen(survivor)
        stage.kill_sidecar()
        stage.start_sidecar()
        assert stage.incident(before)["id"] == old["id"]
        stage.wait_seen(survivor)
        os.kill(survivor.main_pid(), signal.SIGKILL)
        ended(stage, survivor, "external_kill")
        assert [one["id"] for one in stage.incidents(before)] == [old["id"]]


def case_model_that_ended_while_no_sidecar_was_there() -> None:
    """A model that exited between two sidecars is not forgotten: its black box tells the next one."""
    with Stage() as stage, stage.model("unwatched", "beat", f"leave code=5 when={stage.cue('unwatched')}") as model:
        stage.wait_seen(model)
        stage.kill_sidecar()
        stage.cue("unwatched").touch()
        assert model.wait() == 5
        stage.start_sidecar()
        (incident,) = until(lambda: stage.get("/incidents")["incidents"], 40, "an incident from the black box")
        assert incident["class"] == "application_exit", incident
        assert incident["model"] == model.name
        assert incident["missing"], incident


def case_model_that_was_oom_killed_while_no_sidecar_was_there() -> None:
    """Its runner counted the kill in their cgroup, and noted it beside the status: cgroup_oom, not just SIGKILL."""
    with Stage() as stage, stage.model("alone", f"grow rate=300 when={stage.cue('alone')}") as model:
        stage.wait_seen(model)
        stage.kill_sidecar()
        stage.cue("alone").touch()
        assert model.runner.wait(60 * PACE) == -signal.SIGKILL
        stage.start_sidecar()
        (incident,) = until(lambda: stage.get("/incidents")["incidents"], 40, "an incident from the runner's note")
        assert (incident["class"], incident["fields"]["signal"]) == ("cgroup_oom", "SIGKILL"), incident
        assert any(said["source"] == "oomguard run" for said in incident["evidence"]), incident
