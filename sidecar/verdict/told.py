"""Which of the kernel log's reports of OOM kills is about an end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from guard.model import Known, Reading, Unknown
from sidecar.verdict.kernel_report.assemble import parse
from sidecar.verdict.kernel_report.values import OomReport
from sidecar.verdict.owner import Change
from sidecar.verdict.values import EndEvidence

REPORT_BEFORE_SECONDS: Final = 30.0
"""A kill is reported when it is sent; a large process is then torn down for seconds before it is gone."""
REPORT_AFTER_SECONDS: Final = 1.0
"""The log is read a moment after it was written."""
BEGAN_SECONDS: Final = 0.02
"""The start of a process is known to a clock tick."""


@dataclass(frozen=True, slots=True)
class Told:
    """The report that fits. `spared`: the log lays every kill that there was to others; `by_time`: time alone fits."""

    report: OomReport | None = None
    spared: bool = False
    by_time: bool = False


def told_by_kernel(evidence: EndEvidence, counted: Reading[Change]) -> Told:
    """Pick the report that fits by time and victim.

    Where pids can be compared they decide, as a path is the same in every life of a crash loop. Else the group's path
    does, with the group's counter, as far as that can be read. Where a cgroup namespace hides the path the counter and
    the time do, if all that was reported then is of one group.
    """
    if isinstance(evidence.kmsg, Unknown):
        return Told()
    pid = evidence.node_pid if evidence.seen else None
    reports = [one for one in parse(evidence.kmsg.value) if _is_timely(one, evidence)]
    if pid is not None and (own := [one for one in reports if pid in one.pids]):
        return Told(own[-1])
    killed = counted.value.delta if isinstance(counted, Known) else None
    group = [one for one in reports if _is_of_group(one, evidence)]
    by_time = not group and bool(killed) and pid is None
    group = _of_one_group(reports, evidence) if by_time else group
    if not group or killed == 0 or (killed is None and pid is not None):
        return Told()
    named = {victim for one in group for victim in one.pids}
    return Told(group[-1], pid is not None and killed is not None and len(named) >= killed, by_time)


def _of_one_group(reports: list[OomReport], evidence: EndEvidence) -> list[OomReport]:
    """Give the reports if all are of one group, where a cgroup namespace hides the path of the model's own."""
    hidden = bool(evidence.levels) and evidence.levels[0].after.name == "/"
    groups = {one.task_memcg for one in reports}
    return reports if hidden and len(groups) == 1 and None not in groups else []


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
