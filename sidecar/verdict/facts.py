"""What the rules look at: the evidence digested once, without judging it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from guard.model import Failure, Known, Operation, Reading, Unknown, Why
from sidecar.verdict.kernel_report.assemble import parse
from sidecar.verdict.kernel_report.values import OomReport
from sidecar.verdict.owner import Change, kills
from sidecar.verdict.values import EndClass, EndEvidence

REPORT_BEFORE_SECONDS: Final = 30.0
"""A kill is reported when it is sent; a large process is then torn down for seconds before it is gone."""
REPORT_AFTER_SECONDS: Final = 1.0
"""The log is read a moment after it was written."""
BEGAN_SECONDS: Final = 0.02
"""The start of a process is known to a clock tick."""
FATAL_BEFORE_SECONDS: Final = 60.0
"""From an uncaught failure to the end of a server that shuts down in an orderly way."""

_FAILURE_CLASS: Final = {  # guard/recognise.py names the kinds
    "cuda_out_of_memory": EndClass.GPU_ALLOCATION_FAILURE,
    "device_out_of_memory": EndClass.GPU_ALLOCATION_FAILURE,
    "pinned_memory": EndClass.HOST_ALLOCATION_FAILURE,
    "memory_error": EndClass.HOST_ALLOCATION_FAILURE,
    "cpu_allocator": EndClass.HOST_ALLOCATION_FAILURE,
    "mmap": EndClass.HOST_ALLOCATION_FAILURE,
    "shared_memory": EndClass.SHM_EXHAUSTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The digest. Exactly one of `exit_code` and `signal` is set where the wait status is known."""

    evidence: EndEvidence
    exit_code: int | None
    signal: int | None
    kills: Reading[Change]  # OOM kills counted at the model's own level
    report: OomReport | None  # the kernel's report of a kill in this life: of this process, or else of its group
    spared: bool  # the log names the victim of every kill there was, and it was not this process
    failure: Failure | None  # the last fatal one shortly before the end
    sigterm_seconds: float | None  # from the SIGTERM that the guard noted to the end
    in_flight: Operation | None

    @property
    def counted(self) -> int:
        """OOM kills that were counted at the model's own level for sure; 0 where that is not known."""
        return self.kills.value.delta if isinstance(self.kills, Known) else 0

    @property
    def failure_class(self) -> EndClass | None:
        """The class that the fatal failure stands for, if it is one about memory."""
        return None if self.failure is None else _FAILURE_CLASS.get(self.failure.kind)


def digest(evidence: EndEvidence) -> Facts:
    """Digest the evidence of one end."""
    status = evidence.wait_status.value if isinstance(evidence.wait_status, Known) else None
    box = evidence.box.value if isinstance(evidence.box, Known) else None
    no_level = Unknown(Why.HIDDEN, "the model's cgroup")
    counted = kills(evidence.levels[0]) if evidence.levels else no_level
    report, spared = _report(evidence, counted)
    return Facts(
        evidence=evidence,
        exit_code=None if status is None else status.exit_code,
        signal=None if status is None else status.signal,
        kills=counted,
        report=report,
        spared=spared,
        failure=None if box is None else _fatal(box.failures, evidence),
        sigterm_seconds=None
        if box is None or box.sigterm_wall_s is None
        else max(0.0, evidence.ended.wall_s - box.sigterm_wall_s),
        in_flight=None if box is None else _in_flight(box.operations),
    )


def _report(evidence: EndEvidence, counted: Reading[Change]) -> tuple[OomReport | None, bool]:
    """Pick the report that fits by time and victim, and say whether the log clears this process of being one.

    Where pids can be compared they decide, as a path is the same in every life of a crash loop. Else the group's path
    does, with the group's counter, as far as that can be read.
    """
    if isinstance(evidence.kmsg, Unknown):
        return None, False
    pid = evidence.node_pid if evidence.seen else None
    reports = [one for one in parse(evidence.kmsg.value) if _is_timely(one, evidence)]
    if pid is not None and (own := [one for one in reports if pid in one.pids]):
        return own[-1], False
    group = [one for one in reports if _is_of_group(one, evidence)]
    killed = counted.value.delta if isinstance(counted, Known) else None
    if not group or killed == 0 or (killed is None and pid is not None):
        return None, False
    named = {victim for one in group for victim in one.pids}
    return group[-1], pid is not None and killed is not None and len(named) >= killed


def _is_timely(report: OomReport, evidence: EndEvidence) -> bool:
    """Tell a report of this life, shortly before its end."""
    end, began = evidence.ended.monotonic_s, evidence.began_monotonic_s
    first = end - REPORT_BEFORE_SECONDS
    if began is not None and began <= end:  # a start behind the end is of another time namespace
        first = max(first, began - BEGAN_SECONDS)
    return report.at_seconds is not None and first <= report.at_seconds <= end + REPORT_AFTER_SECONDS


def _is_of_group(report: OomReport, evidence: EndEvidence) -> bool:
    """Tell whether the victim's group is the process's own."""
    own = evidence.levels[0].after.name.rstrip("/") if evidence.levels else ""
    # The reader may see the path from within a cgroup namespace, so it can be a tail of the kernel's.
    return bool(own) and (report.task_memcg or "").endswith(own)


def _fatal(failures: tuple[Failure, ...], evidence: EndEvidence) -> Failure | None:
    """Pick the last fatal failure shortly before the end. What was caught and survived is never blamed."""
    end = evidence.ended.monotonic_s
    recent = [one for one in failures if one.fatal and -1.0 <= end - one.at_monotonic_s <= FATAL_BEFORE_SECONDS]
    return max(recent, key=lambda one: one.at_monotonic_s, default=None)


def _in_flight(operations: tuple[Operation, ...]) -> Operation | None:
    return max((one for one in operations if not one.done), key=lambda one: one.updated_monotonic_s, default=None)


def signal_name(number: int) -> str:
    """Name a signal: SIGKILL, or "signal 40"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
