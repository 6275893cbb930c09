"""What the rules look at: the evidence digested once, without judging it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from guard.box.faults import NativeFault
from guard.model import BoxState, Failure, Known, Operation, Reading, Unknown, Why
from sidecar.verdict.kernel_report.values import OomReport
from sidecar.verdict.owner import Change, kills
from sidecar.verdict.told import told_by_kernel
from sidecar.verdict.values import ChildEnd, EndClass, EndEvidence

FATAL_BEFORE_SECONDS: Final = 60.0
"""From an uncaught failure to the end of a server that shuts down in an orderly way."""

CODE_OF_A_SIGNAL: Final = 128
"""Shells and container runtimes report a signal n as exit code 128 + n."""
TERMINATED: Final = CODE_OF_A_SIGNAL + signal.SIGTERM
KILLED: Final = CODE_OF_A_SIGNAL + signal.SIGKILL
SENT: Final = (
    *(signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
    *(signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
)
"""Signals that come from outside; all others come from what the process itself did."""
_STOPS: Final = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT)
_STOPPED_CODES: Final = (0, TERMINATED, KILLED)
_LAST_SIGNAL: Final = 64

SHORT_NODE_RATIO: Final = 0.10
"""Where earlyoom sends SIGTERM by default (earlyoom(1), -m), as a share of the node's memory."""

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
    """The digest. Exactly one of `exit_code` and `signal` is set where it is known how it ended."""

    evidence: EndEvidence
    exit_code: int | None
    signal: int | None
    status_source: str | None  # the supervisor that told how it ended; None: the wait status did, or nobody
    inferred: bool  # the signal was read out of an exit code 128 + n of a supervisor: either may be meant
    kills: Reading[Change]  # OOM kills counted at the model's own level
    by_runner: bool  # its runner counted them
    report: OomReport | None  # the kernel's report of a kill in this life: of this process, or else of its group
    by_time: bool  # the report is known to be of this group by its time alone
    spared: bool  # the log names the victim of every kill there was, and it was not this process
    failure: Failure | None  # the last fatal one shortly before the end
    caught: Failure | None  # the last one about memory shortly before the end that was not fatal
    fault: NativeFault | None  # the trace of a native fault that fits the way it ended
    sigterm_seconds: float | None  # from the SIGTERM that the guard or the runner noted to the end
    in_flight: Operation | None
    child: ChildEnd | None  # the last process of the model that failed shortly before its main process did

    @property
    def own_name(self) -> str:
        """The cgroup whose kills are counted."""
        if self.by_runner or not self.evidence.levels:
            return "the cgroup of its runner"
        return self.evidence.levels[0].after.name

    @property
    def counted(self) -> int:
        """OOM kills that were counted at the model's own level for sure; 0 where that is not known."""
        if isinstance(self.kills, Unknown) or self.kills.value.before is None:
            return 0
        return self.kills.value.delta

    @property
    def is_unseen(self) -> bool:
        """Whether nobody knows how it ended."""
        return self.signal is None and self.exit_code is None

    @property
    def is_told_to_stop(self) -> bool:
        """Whether it ended by SIGTERM, or noted one before."""
        return self.sigterm_seconds is not None or self.signal == signal.SIGTERM or self.exit_code == TERMINATED

    @property
    def was_stopped(self) -> bool:
        """Whether it ended in a way that a supervisor's stop may end in; an end that nobody saw may."""
        code_fits = self.exit_code in _STOPPED_CODES
        return self.is_told_to_stop or self.is_unseen or self.signal in _STOPS or code_fits


def memory_class(failure: Failure | None) -> EndClass | None:
    """Give the class that a failure stands for, if it is one about memory."""
    return None if failure is None else class_of_failure(failure.kind)


def class_of_failure(kind: str) -> EndClass | None:
    """Give the class that a kind of failure stands for, if it is one about memory."""
    return _FAILURE_CLASS.get(kind)


def digest(evidence: EndEvidence) -> Facts:
    """Digest the evidence of one end."""
    exit_code, ended_by, source = _status(evidence)
    box = evidence.box.value if isinstance(evidence.box, Known) else None
    counted = _counted(evidence)
    told = told_by_kernel(evidence, counted)
    return Facts(
        evidence=evidence,
        exit_code=exit_code,
        signal=ended_by,
        status_source=source,
        inferred=source is not None and ended_by is not None,
        kills=counted,
        by_runner=evidence.runner_kills is not None and counted == Known(Change(*evidence.runner_kills)),
        report=told.report,
        by_time=told.by_time,
        spared=told.spared,
        failure=None if box is None else _last(box.failures, evidence, fatal=True),
        caught=None if box is None else _caught(box, evidence),
        fault=_fault(evidence, exit_code, ended_by),
        sigterm_seconds=_sigterm_seconds(box, evidence),
        in_flight=None if box is None else _in_flight(box.operations),
        child=None if exit_code == 0 else _child(evidence),
    )


def _counted(evidence: EndEvidence) -> Reading[Change]:
    """Give the change of the own level's count. Where that was not read before, its runner's or the node's may tell."""
    counted: Reading[Change] = Unknown(Why.HIDDEN, "the model's cgroup")
    if evidence.levels:
        counted = kills(evidence.levels[0])
    if isinstance(counted, Known) and counted.value.before is not None:
        return counted
    if evidence.runner_kills is not None:
        return Known(Change(*evidence.runner_kills))
    node = evidence.node_oom_kill_delta
    if isinstance(counted, Known) and isinstance(node, Known) and node.value == 0:
        return Known(Change(counted.value.after, counted.value.after))
    return counted


def _status(evidence: EndEvidence) -> tuple[int | None, int | None, str | None]:
    """Give exit code, signal, and who told them where that was a supervisor: it is believed where nobody else knows."""
    if isinstance(evidence.wait_status, Known):
        return evidence.wait_status.value.exit_code, evidence.wait_status.value.signal, None
    for told in evidence.supervisor:
        if told.signal is not None:
            return None, told.signal, told.source
        if told.exit_code is not None:
            number = told.exit_code - CODE_OF_A_SIGNAL
            by_signal = 0 < number <= _LAST_SIGNAL
            return (None, number, told.source) if by_signal else (told.exit_code, None, told.source)
    return None, None, None


def _sigterm_seconds(box: BoxState | None, evidence: EndEvidence) -> float | None:
    noted = (None if box is None else box.sigterm_wall_s, evidence.sigterm_wall_s)
    first_s = min((one for one in noted if one is not None), default=None)
    return None if first_s is None else max(0.0, evidence.ended.wall_s - first_s)


def _last(failures: tuple[Failure, ...], evidence: EndEvidence, *, fatal: bool) -> Failure | None:
    """Pick the last failure of a kind shortly before the end."""
    end = evidence.ended.monotonic_s
    recent = [
        one for one in failures if one.fatal is fatal and -1.0 <= end - one.at_monotonic_s <= FATAL_BEFORE_SECONDS
    ]
    return max(recent, key=lambda one: one.at_monotonic_s, default=None)


def _caught(box: BoxState, evidence: EndEvidence) -> Failure | None:
    return _last(tuple(one for one in box.failures if memory_class(one) is not None), evidence, fatal=False)


def _fault(evidence: EndEvidence, exit_code: int | None, ended_by: int | None) -> NativeFault | None:
    """Give the trace if the process may have died of it: runtimes that handle a SIGSEGV leave one as well."""
    if isinstance(evidence.fault, Unknown) or exit_code is not None:
        return None
    fault = evidence.fault.value
    named = fault.signal is not None and (ended_by is None or fault.signal == signal_name(ended_by))
    return fault if named or ended_by == signal.SIGABRT else None


def _in_flight(operations: tuple[Operation, ...]) -> Operation | None:
    return max((one for one in operations if not one.done), key=lambda one: one.updated_monotonic_s, default=None)


def _child(evidence: EndEvidence) -> ChildEnd | None:
    """Pick the last failure among the processes of the model; one that was stopped from outside was stopped with it."""
    end_s = evidence.ended.monotonic_s
    failed = [
        one
        for one in evidence.children
        if one.end_class not in (EndClass.EXTERNAL_KILL, EndClass.DELETION, EndClass.EVICTION)
        and 0 <= end_s - one.at.monotonic_s <= FATAL_BEFORE_SECONDS
    ]
    return max(failed, key=lambda one: one.at.monotonic_s, default=None)


def signal_name(number: int) -> str:
    """Name a signal: SIGKILL, or "signal 40"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
