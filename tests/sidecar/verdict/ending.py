"""Ends for the tests of the verdict: levels before and after, boxes, kernel logs, and the evidence made of them."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Final

from guard.kernel.values import KmsgRecord
from guard.model import BoxState, ExitMark, Failure, Known, Operation, Unknown, Why
from sidecar.verdict.classify import classify
from sidecar.verdict.values import (
    Confidence,
    EndEvidence,
    LevelsBefore,
    Verdict,
    WaitStatus,
)
from tests.sidecar import making as make
from tests.sidecar.making import MIB

END: Final = 1000.0
NO_BOX: Final = Unknown(Why.MISSING, "black box")
NO_KMSG: Final = Unknown(Why.DENIED, "/dev/kmsg")
NO_STATUS: Final = Unknown(Why.NOT_SAMPLED, "wait status")
LIMIT: Final = str(256 * MIB)
FULL: Final = make.V2(anon=250 * MIB, limit=LIMIT)
RANK: Final = [Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH]


def ended(code: int | None = None, by: int | None = None) -> Known[WaitStatus]:
    """Make a wait status."""
    return Known(WaitStatus(code, by))


KILLED: Final = ended(by=signal.SIGKILL)


def pair(before: make.V2 | make.V1, after: make.V2 | make.V1, depth: int = 0, name: str | None = None) -> LevelsBefore:
    """Make one level before and after."""
    return LevelsBefore(
        before=make.level(before, depth=depth, name=name), after=make.level(after, depth=depth, name=name)
    )


QUIET: Final = (pair(FULL, FULL),)
OWN_OOM: Final = (
    pair(FULL, replace(FULL, events={"oom": 1, "oom_kill": 1, "max": 90}, local={"oom": 1, "oom_kill": 1})),
)
POD_OOM: Final = (
    pair(FULL, replace(FULL, events={"oom_kill": 1}, local={"oom_kill": 1})),
    pair(FULL, replace(FULL, events={"oom": 1, "oom_kill": 1}, local={"oom": 1}), depth=1),
    pair(make.V2(), make.V2(), depth=2),
)


def box(
    *,
    operations: tuple[Operation, ...] = (),
    failures: tuple[Failure, ...] = (),
    sigterm_ago: float | None = None,
    mark: ExitMark | None = None,
) -> Known[BoxState]:
    """Make a black box."""
    return Known(
        BoxState(
            life=make.LIFE,
            parent_session=None,
            release="1",
            created_wall_s=0.0,
            command="serve",
            operations=operations,
            failures=failures,
            sigterm_wall_s=None if sigterm_ago is None else make.at(END).wall_s - sigterm_ago,
            exit_mark=mark,
        )
    )


def failure(kind: str, *, fatal: bool = True, ago: float = 0.5, message: str = "no room") -> Failure:
    """Make a failure."""
    return Failure(
        at_wall_s=make.at(END - ago).wall_s,
        at_monotonic_s=END - ago,
        kind=kind,
        exception="torch.OutOfMemoryError",
        message=message,
        fatal=fatal,
    )


BASE: Final = EndEvidence(
    life=make.LIFE,
    began_monotonic_s=END - 60,
    node_pid=make.LIFE.pid,
    main=True,
    ended=make.at(END),
    wait_status=NO_STATUS,
    levels=QUIET,
    hidden_ancestors=False,
    node_oom_kill_delta=Known(0),
    node_available_ratio=Known(0.6),
    kmsg=NO_KMSG,
    box=NO_BOX,
    liveness_failures_answered=0,
    others_alive=0,
)


def verdict(**so: object) -> Verdict:
    """Classify an end that is so."""
    return classify(replace(BASE, **so))  # type: ignore[arg-type]


def kmsg(*lines: str, ago: float = 0.1) -> Known[tuple[KmsgRecord, ...]]:
    """Make kernel log records."""
    us = int((END - ago) * 1e6)
    return Known(tuple(KmsgRecord(6, 0, number, us + number, line) for number, line in enumerate(lines)))


def report(owner: str, victim: str, pid: int = make.LIFE.pid) -> Known[tuple[KmsgRecord, ...]]:
    """Make the kernel's report of a kill at the limit of `owner` ("" for the node)."""
    whose = f"oom_memcg={owner}" if owner else "global_oom"
    head = "Memory cgroup out of memory" if owner else "Out of memory"
    return kmsg(
        "serve invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"oom-kill:constraint=X,nodemask=(null),cpuset=/,mems_allowed=0,{whose},task_memcg={victim},"
        f"task=serve,pid={pid},uid=0",
        f"{head}: Killed process {pid} (serve) total-vm:9kB, anon-rss:256000kB, file-rss:0kB, shmem-rss:0kB",
    )
