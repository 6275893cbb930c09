"""Ends judged by a sidecar that may read the kernel log, as a privileged one may."""

from __future__ import annotations

from tests.lab.cases.stage import SMALL, Document, Sidecar, Stage, Way
from tests.lab.cases.verdicts import ended, supporting
from tests.lab.kit.cgroups import Limits


def case_kernel_log_names_limit_and_victim() -> list[Document]:
    """The log tells whose limit it was and who was killed: cgroup_oom, high, at the ancestor, with the victim's pid."""
    with (
        Stage(Sidecar(uid=None)) as stage,
        stage.group.child("logged-pod", SMALL) as pod,
        stage.model("logged", "grow rate=60", way=Way(limits=Limits(), inside=pod)) as model,
    ):
        incident = ended(stage, model, "cgroup_oom", "high")
        assert incident["level"] == pod.path, incident
        assert incident["fields"]["oom_memcg"] == pod.path, incident
        assert incident["fields"]["task_memcg"] == model.group.path, incident
        assert incident["fields"]["victim_pids"], incident
        assert any("kernel log" in text for text in supporting(incident)), incident
        return stage.told
