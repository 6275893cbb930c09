"""Every way to end, for real, and what the sidecar says about it within a second."""

from __future__ import annotations

import os
import signal

from tests.lab.cases.stage import MODEL_UID, Document, Model, Stage
from tests.lab.kit import loads
from tests.lab.kit.cgroups import MIB, Limits
from tests.lab.kit.namespaces import Apart
from tests.lab.kit.wait import PACE, until

SMALL = Limits(memory_max_bytes=80 * MIB)


def case_growth_past_the_own_limit(stage: Stage) -> None:
    """The kernel kills the model at its own limit: cgroup_oom, and the level is the model's own group."""
    model = stage.model("own-limit", "grow rate=60", group=stage.child("own-limit", SMALL))
    incident = _ended(stage, model, "cgroup_oom", "high")
    assert incident["level"] == model.group.path
    assert any("oom_kill" in text for text in _supporting(incident))


def case_growth_past_an_ancestors_limit(stage: Stage) -> None:
    """The limit of a visible ancestor kills: cgroup_oom, and the level is that ancestor."""
    pod = stage.child("pod", SMALL)
    model = stage.model("pod-limit", "grow rate=60", group=pod.child("container"))
    incident = _ended(stage, model, "cgroup_oom")
    assert incident["level"] == pod.path
    assert _supporting(incident)


def case_growth_past_a_hidden_ancestors_limit(stage: Stage) -> None:
    """In a cgroup namespace the pod's limit cannot be seen: cgroup_oom, never blamed on the model's own limit."""
    pod = stage.child("hidden-pod", SMALL)
    model = stage.model(
        "hidden-limit",
        "grow rate=60",
        group=pod.child("container"),
        apart=Apart(uid=MODEL_UID, pid_namespace=False, reachable=(str(stage.shared),)),
    )
    incident = _ended(stage, model, "cgroup_oom")
    assert incident["level"] != "/"
    assert incident["missing"]


def case_kill_from_outside_while_thrashing(stage: Stage) -> None:
    """Thrash alone ends nothing; a kill -9 in the middle of it is an external kill, not the OOM killer's."""
    weights = str(stage.folder / "weights")
    loads.make_file(weights, 120)
    model = stage.model("thrash", f"thrash path={weights} threads=2", group=stage.child("thrash", SMALL))
    stage.wait_seen(model)
    until(lambda: _refaults(stage.wait_seen(model)) > 3000, 30, "thrash to show in the sidecar's sample")
    assert not [one for one in stage.get("/incidents")["incidents"] if one["model"] == model.name]
    os.kill(model.main_pid(), signal.SIGKILL)
    _ended(stage, model, "external_kill")


def case_kill_from_outside(stage: Stage) -> None:
    """Somebody sends SIGKILL to a model in good health: external_kill."""
    model = stage.model("kill-9", "sleep", group=stage.child("kill-9", SMALL))
    stage.wait_seen(model)
    os.kill(model.main_pid(), signal.SIGKILL)
    _ended(stage, model, "external_kill")
    assert model.runner.wait(10) in (-signal.SIGKILL, 128 + signal.SIGKILL)


def case_segmentation_fault(stage: Stage) -> None:
    """The model reads address zero: crash_signal, and SIGSEGV is named."""
    model = stage.model("segfault", "segfault after=1", group=stage.child("segfault", SMALL))
    incident = _ended(stage, model, "crash_signal", "high")
    assert "SIGSEGV" in str(incident)


def case_exit_with_a_code(stage: Stage) -> None:
    """The model exits with 3: application_exit with that code."""
    model = stage.model("exit-3", "leave code=3 after=1", group=stage.child("exit-3", SMALL))
    incident = _ended(stage, model, "application_exit")
    assert incident["fields"]["exit_code"] == 3
    assert model.runner.wait(10) == 3, "the runner passes the status on"


def case_clean_exit(stage: Stage) -> None:
    """The model exits with 0: application_exit with code 0."""
    model = stage.model("exit-0", "leave code=0 after=1", group=stage.child("exit-0", SMALL))
    incident = _ended(stage, model, "application_exit")
    assert incident["fields"]["exit_code"] == 0
    assert model.runner.wait(10) == 0


def case_killed_child_of_a_living_parent(stage: Stage) -> None:
    """The kernel kills a worker and the model lives on: an incident of a child, none of the model."""
    model = stage.model("worker", "child grow_rate=60", group=stage.child("worker", SMALL))
    incident = stage.incident(model, main=False)
    assert incident["class"] == "cgroup_oom"
    assert incident["level"] == model.group.path
    assert model.runner.poll() is None
    assert not [one for one in stage.get("/incidents")["incidents"] if one["model"] == model.name and one["main"]]
    model.group.kill_all()


def case_sidecar_killed_in_the_middle(stage: Stage) -> None:
    """After kill -9 the next sidecar knows the old incidents, sees the living model again and records its end."""
    before = stage.model("before", "leave code=4 after=1", group=stage.child("before", SMALL))
    old = stage.incident(before)
    survivor = stage.model("survivor", "sleep", group=stage.child("survivor", SMALL))
    stage.wait_seen(survivor)
    stage.kill_sidecar()
    stage.start_sidecar()
    assert old["id"] in [one["id"] for one in stage.get("/incidents")["incidents"]]
    stage.wait_seen(survivor)
    os.kill(survivor.main_pid(), signal.SIGKILL)
    _ended(stage, survivor, "external_kill")
    assert old["id"] in [one["id"] for one in stage.get("/incidents")["incidents"]]


def _ended(stage: Stage, model: Model, end_class: str, confidence: str | None = None) -> Document:
    """Return the incident of the model's end after checking what all must have."""
    incident = stage.incident(model)
    assert (incident["class"], incident["main"]) == (end_class, True), incident
    assert confidence in (None, incident["confidence"]), incident
    assert _supporting(incident), incident
    assert incident["verdict_after_seconds"] <= PACE, incident
    return incident


def _supporting(incident: Document) -> list[str]:
    return [f"{one['text']} ({one['source']})" for one in incident["evidence"] if one["for"]]


def _refaults(status: Document) -> int:
    own = status["sample"]["levels"][0]["memory"]["stat"]["value"]
    return sum(value for name, value in own.items() if name.startswith("workingset_refault"))
