"""Batch systems and platforms: Slurm, HTCondor, LSF, PBS, Mesos, Cloud Foundry, App Engine, Vertex, Heroku, Nomad."""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.patterns import Pattern
from sidecar.explain.values import Field, Role
from sidecar.verdict.values import Confidence, EndClass

_KERNEL_LOG: Final = ("the kernel log of the node at that moment",)


def _megabytes(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {"memory_limit_kb": int(found[1]) << 10}


def _cancelled(_text: str, found: re.Match[str]) -> dict[str, Field]:
    reason = (found[1] or "").strip().lower()
    if reason == "preemption":
        return {"end_class": EndClass.EVICTION.value, "summary": "the batch system preempted the job for another one"}
    return {"reason": reason} if reason else {}


def _row(subject: str, words: tuple[str, ...], start: str, summary: str, **more: object) -> Pattern:
    given: dict[str, object] = {
        "end_class": EndClass.CGROUP_OOM,
        "confidence": Confidence.MEDIUM,
        "source": "log of a batch system or platform",
        "missing": _KERNEL_LOG,
        **more,
    }
    return Pattern(subject=subject, words=words, start=re.compile(start), summary=summary, **given)  # type: ignore[arg-type]


PATTERNS: Final = (
    _row(
        "slurm",
        ("oom-kill event", "oom_kill event", "oom killed", ": out of memory"),
        r"[Dd]etected [1-9]\d* oom[-_]kill event|have been OOM Killed|srun: error: \S+ tasks? [\d,-]+: Out Of Memory",
        "the batch job's cgroup hit its memory limit",
        confidence=Confidence.HIGH,
    ),
    _row(
        "condor",
        ("memory limit of",),
        r"Job has gone over (?:cgroup )?memory limit of (\d{1,12}) megabytes",
        "HTCondor says that the job's cgroup hit its memory limit, and holds it",
        read=_megabytes,
    ),
    _row(
        "limit_kill",
        ("term_memlimit", "job killed: ", "killed by yarn"),
        r"TERM_MEMLIMIT\b|PBS: job killed: v?mem \d+\w* exceeded limit|killed by YARN for exceeding \S{0,12} ?memory",
        "the batch system killed the job for using more memory than it asked for",
        end_class=EndClass.USERSPACE_OOM,
        read=lambda _text, found: {"killer": "the batch system", "reason": found[0], "kernel_oom": False},
        missing=(),
    ),
    _row(
        "platform",
        (
            "memory limit exceeded",
            "(out of memory)",
            "hard memory limit",
            "out-of-memory and exited",
            "memory quota vast",
        ),
        r"Memory limit exceeded: Requested: (\d{1,12})MB|[Ee]xit(?:ed with)? status 137 \(out of memory\)"
        r"|Exceeded hard memory limit of|ran out-of-memory and exited with|\bR15 \(Memory quota vastly exceeded\)",
        "the platform says that the instance passed its memory limit and was ended",
        read=lambda text, found: _megabytes(text, found) if found[1] else {},
    ),
    _row(
        "cancelled",
        (" cancelled at ",),
        r"\*\*\* (?:JOB|STEP) \S{1,64} ON \S{1,256} CANCELLED AT \S{1,40}+(?! DUE TO TIME)(?: DUE TO ([A-Z ]{3,24}))?",
        "the batch job was cancelled",
        end_class=EndClass.EXTERNAL_KILL,
        read=_cancelled,
        missing=("who cancelled it: the accounting of the batch system (sacct -j ID -o State,User)",),
    ),
    _row(
        "nomad_stop",
        ("force killing",),
        r"Sent interrupt\. Waiting \S{1,16} before force killing",
        "Nomad was told to stop the task; what did not end in time was killed",
        end_class=EndClass.DELETION,
        role=Role.END,
        again=False,
        missing=("who stopped it: events of the job and its deployments",),
    ),
)
