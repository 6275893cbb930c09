"""Ends judged by a sidecar that may read the kernel log, as a privileged one may."""

from __future__ import annotations

import contextlib

from guard.kernel.reader import Reader
from guard.model import Unknown
from tests.lab.cases.levels import known
from tests.lab.cases.readings import oom_line
from tests.lab.cases.stage import SMALL, Document, Sidecar, Stage, Way
from tests.lab.cases.verdicts import ended, supporting
from tests.lab.kit.cgroups import Limits, NotOfferedError
from tests.lab.kit.wait import until


def case_kernel_log_names_limit_and_victim() -> list[Document]:
    """The log tells whose limit it was and who was killed: cgroup_oom, high, at the ancestor, with the victim's pid."""
    log = Reader().keep("/dev/kmsg")
    if isinstance(log, Unknown):
        raise NotOfferedError(f"no kernel log: {log}")
    with (
        contextlib.closing(log),
        Stage(Sidecar(uid=None)) as stage,
        stage.group.child("logged-pod", SMALL) as pod,
        stage.model("logged", "grow rate=60", way=Way(limits=Limits(), inside=pod)) as model,
    ):
        known(log.seek_end())
        ended(stage, model, "cgroup_oom", "high")
        if oom_line(log, f"oom_memcg={pod.path}") is None:
            raise NotOfferedError("the kernel was silent: it reports ten kills in five seconds at the most")
        incident = until(lambda: _logged(stage.incident(model)), 30, "the report to be evidence")
        assert incident["level"] == pod.path, incident
        assert incident["fields"]["oom_memcg"] == pod.path, incident
        assert incident["fields"]["task_memcg"] == model.group.path, incident
        assert incident["fields"]["victim_pids"], incident
        return stage.told


def _logged(incident: Document) -> Document | None:
    return incident if any("kernel log" in text for text in supporting(incident)) else None
