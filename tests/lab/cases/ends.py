"""Every way to end, for real, and what the sidecar says about it within a second."""

from __future__ import annotations

import os
import signal
from functools import partial

from sidecar.unseen import SETTLE_SECONDS
from tests.lab.cases.stage import SMALL, Document, Model, Stage, Way
from tests.lab.cases.verdicts import ended, supporting
from tests.lab.kit import loads
from tests.lab.kit.cgroups import MIB, Limits
from tests.lab.kit.wait import until


def case_growth_past_the_own_limit(stage: Stage) -> None:
    """The kernel kills the model at its own limit: cgroup_oom, and the level is the model's own group."""
    with stage.model("own-limit", "grow rate=60") as model:
        incident = ended(stage, model, "cgroup_oom", "high")
        assert incident["level"] == model.group.path
        assert any("oom_kill" in text for text in supporting(incident)), incident


def case_growth_past_an_ancestors_limit(stage: Stage) -> None:
    """The limit of a visible ancestor kills: cgroup_oom, and the level is that ancestor."""
    with (
        stage.group.child("pod", SMALL) as pod,
        stage.model("pod-limit", "grow rate=60", way=Way(limits=Limits(), inside=pod)) as model,
    ):
        incident = ended(stage, model, "cgroup_oom")
        assert incident["level"] == pod.path


def case_growth_past_a_hidden_ancestors_limit(stage: Stage) -> None:
    """In a cgroup namespace the pod's limit cannot be seen: cgroup_oom, and the model's own group is not blamed."""
    with (
        stage.group.child("hidden-pod", SMALL) as pod,
        stage.model("hidden-limit", "grow rate=60", way=Way(limits=Limits(), inside=pod, hidden=True)) as model,
    ):
        incident = ended(stage, model, "cgroup_oom")
        assert incident["level"] is None
        assert incident["missing"]


def case_group_kill(stage: Stage) -> None:
    """With memory.oom.group, the kubelet's default on v2, the runner dies too: still cgroup_oom at the own limit."""
    limits = Limits(memory_max_bytes=80 * MIB, oom_group=True)
    with stage.model("group-kill", "grow rate=60", way=Way(limits=limits)) as model:
        incident = ended(stage, model, "cgroup_oom")
        assert incident["level"] == model.group.path
        assert model.wait() == -signal.SIGKILL


def case_kill_from_outside_while_thrashing(stage: Stage) -> None:
    """Thrash alone ends nothing; a kill -9 in the middle of it is an external kill, not the OOM killer's."""
    weights = str(stage.folder / "weights")
    loads.make_file(weights, 120)
    with stage.model("thrash", f"thrash path={weights} threads=2") as model:
        until(lambda: _refaults(stage.wait_seen(model)) > 3000, 30, "thrash to show in the sidecar's sample")
        assert not stage.incidents(model)
        os.kill(model.main_pid(), signal.SIGKILL)
        ended(stage, model, "external_kill")


def case_kill_from_outside(stage: Stage) -> None:
    """Somebody sends SIGKILL to a model in good health: external_kill, and the runner dies the same way."""
    with stage.model("kill-9", "sleep") as model:
        stage.wait_seen(model)
        os.kill(model.main_pid(), signal.SIGKILL)
        ended(stage, model, "external_kill")
        assert model.wait() == -signal.SIGKILL


def case_segmentation_fault(stage: Stage) -> None:
    """The model reads address zero: crash_signal, and SIGSEGV is named."""
    with stage.model("segfault", f"segfault when={stage.cue('segfault')}") as model:
        stage.give_cue(model)
        incident = ended(stage, model, "crash_signal", "high")
        assert "SIGSEGV" in incident["summary"], incident


def case_exit_with_a_code(stage: Stage) -> None:
    """The model exits with 3: application_exit with that code, which the runner passes on."""
    with stage.model("exit-3", f"leave code=3 when={stage.cue('exit-3')}") as model:
        stage.give_cue(model)
        incident = ended(stage, model, "application_exit")
        assert incident["fields"]["exit_code"] == 3
        assert model.wait() == 3


def case_clean_exit(stage: Stage) -> None:
    """The model exits with 0: application_exit with code 0, which the runner passes on."""
    with stage.model("exit-0", f"leave code=0 when={stage.cue('exit-0')}") as model:
        stage.give_cue(model)
        incident = ended(stage, model, "application_exit")
        assert incident["fields"]["exit_code"] == 0
        assert model.wait() == 0


def case_killed_worker_of_a_living_parent(stage: Stage) -> None:
    """The kernel kills a worker and the model lives on: an incident of a child, none of the model."""
    with stage.model("worker", f"child rate=60 when={stage.cue('worker')}") as model:
        stage.give_cue(model, processes=2)
        incident = stage.incident(model, main=False)
        assert incident["class"] == "cgroup_oom", incident
        assert incident["level"] == model.group.path
        assert supporting(incident)
        assert model.runner.poll() is None
        assert [one["main"] for one in stage.incidents(model)] == [False]


def case_killed_worker_that_nobody_handed_over(stage: Stage) -> None:
    """A worker without the guard is killed and the model lives on: one incident, by the counters alone."""
    with stage.model("stranger", f"child beats=0 rate=60 when={stage.cue('stranger')}") as model:
        stage.give_cue(model)
        incident = stage.incident(model, main=False)
        assert incident["class"] == "cgroup_oom", incident
        assert incident["level"] == model.group.path
        assert "not handed over" in incident["summary"]
        assert any("oom_kill rose from 0 to 1" in text for text in supporting(incident)), incident
        until(lambda: b"ended with -9" in model.log.read_bytes(), 10, "the model to notice")
        assert model.runner.poll() is None
        os.kill(model.main_pid(), signal.SIGKILL)
        ended(stage, model, "external_kill")
        assert [one["main"] for one in stage.incidents(model)] == [True, False]


def case_two_models_in_one_cgroup(stage: Stage) -> None:
    """Two names in one cgroup are two models: the kill of the one is told once, and is no business of the other."""
    with stage.model("alpha", f"grow rate=60 when={stage.cue('alpha')}") as alpha:
        beta = stage.run("beta", alpha.group, f"leave code=5 when={stage.cue('beta')}")
        stage.wait_seen(beta)
        stage.give_cue(alpha)
        settled = ended(stage, alpha, "cgroup_oom")["monotonic_s"] + SETTLE_SECONDS + 1
        until(lambda: stage.wait_seen(beta)["sample"]["at"]["monotonic_s"] > settled, 20, "every kill to be told")
        assert len(stage.incidents(alpha)) == 1
        assert not stage.incidents(beta)
        stage.give_cue(beta)
        assert ended(stage, beta, "application_exit")["fields"]["exit_code"] == 5


def case_crash_loop(stage: Stage) -> None:
    """In one cgroup, one right after the other: what killed the last life does not explain the end of the next."""
    grow, by_itself = "grow rate=300 when={}", "application_exit"
    lives = (
        (grow, "cgroup_oom"),
        ("leave code=3 when={}", by_itself),
        (grow, "cgroup_oom"),
        ("fail when={}", by_itself),
        (grow, "cgroup_oom"),
        ("sleep", "external_kill"),
    )
    with stage.model("loop", "sleep") as model:
        stage.wait_seen(model)
        os.kill(model.main_pid(), signal.SIGKILL)
        ended(stage, model, "external_kill", "high")
        for number, (load, expected) in enumerate(lives, 2):
            cue = stage.cue(f"loop-{number}")
            life = stage.run("loop", model.group, load.format(cue))
            stage.wait_seen(life)
            cue.touch()
            if load == "sleep":
                os.kill(life.main_pid(), signal.SIGKILL)
            assert len(until(partial(_as_many, stage, life, number), 20, f"the end of life {number}")) == number
            ended(stage, life, expected, "high")


def _as_many(stage: Stage, model: Model, number: int) -> list[Document]:
    found = stage.incidents(model)
    return found if len(found) >= number else []


def _refaults(status: Document) -> int:
    own = status["sample"]["levels"][0]["memory"]["stat"]["value"]
    return sum(value for name, value in own.items() if name.startswith("workingset_refault"))
