"""The rules for every end but the kernel's OOM killer. Each gives a draft, or None where it does not apply."""

from __future__ import annotations

import signal
from typing import Final

from guard.model import Failure, Known, Unknown
from sidecar.sample import Instant
from sidecar.units import human_seconds, human_share
from sidecar.verdict.draft import Draft
from sidecar.verdict.facts import KILLED, SENT, SHORT_NODE_RATIO, TERMINATED, Facts, memory_class, signal_name
from sidecar.verdict.values import Confidence, EndClass, Statement
from sidecar.verdict.words import (
    child_statements,
    child_words,
    failure_statement,
    failure_statements,
    failure_words,
    in_flight_words,
    process_words,
    status_statements,
    status_words,
)

_KILLERS: Final = (signal.SIGTERM, signal.SIGKILL)
_CAUGHT_SECONDS: Final = 2.0
"""From a failure that a server catches to its `os._exit`: it logs a trace, and ends without unwinding."""


def health_check(facts: Facts) -> Draft | None:
    """Blame the liveness probe: as many failures answered as a supervisor allows, then it was made to stop."""
    failures, threshold = facts.evidence.liveness_failures_answered, facts.evidence.liveness_threshold
    told = facts.is_told_to_stop
    aborted = facts.signal == signal.SIGABRT and facts.evidence.liveness_failing is not None  # for a core dump
    if failures < threshold or not (facts.was_stopped or aborted):
        return None
    answered = facts.evidence.liveness_failing
    confidence = Confidence.HIGH if told else Confidence.LOW if facts.exit_code == 0 else Confidence.MEDIUM
    if answered is None:
        confidence = Confidence.MEDIUM if told else Confidence.LOW
    said = _answers(failures, threshold, answered, facts.evidence.ended)
    return Draft(
        end_class=EndClass.HEALTH_CHECK,
        confidence=confidence,
        summary=f"{process_words(facts)} failed its liveness probe {failures} times and was stopped, "
        f"it ended {status_words(facts)}{in_flight_words(facts.in_flight)}",
        statements=(said, *_sigterm(facts)),
    )


def _answers(failures: int, threshold: int, answered: tuple[Instant, Instant] | None, ended: Instant) -> Statement:
    """Say what /livez answered; where nobody asked, what it would have."""
    if answered is None:
        text = f"liveness had failed for {failures} probe periods, {threshold} are allowed, but nobody asked /livez"
        return Statement(supports=True, text=text, source="state of the sidecar")
    first, last = (human_seconds(max(0.0, ended.monotonic_s - at.monotonic_s)) for at in answered)
    text = (
        f"the last {failures} liveness probes in a row were answered with failure, {threshold} are allowed: the first "
        f"{first} before the end, the last {last} before it"
    )
    return Statement(supports=True, text=text, source="answers of the sidecar")


def allocation_failure(facts: Facts) -> Draft | None:
    """Blame an allocation that failed shortly before the end: on the GPU, the host, or in shared memory.

    One that was caught is blamed only where the process exited right after it, without unwinding.
    """
    failure = facts.failure if memory_class(facts.failure) is not None else _decisive(facts)
    end_class = memory_class(failure)
    if failure is None or end_class is None or facts.signal in SENT:
        return None
    confidence = Confidence.HIGH if facts.exit_code and failure.fatal else Confidence.MEDIUM
    return Draft(
        end_class=end_class,
        confidence=confidence,
        summary=f"{process_words(facts)} ended {status_words(facts)} after {failure_words(failure)}"
        f"{in_flight_words(facts.in_flight)}",
        statements=(*status_statements(facts), failure_statement(facts, failure)),
    )


def _decisive(facts: Facts) -> Failure | None:
    """Give a caught failure that the process ended itself for: an exit code of failure at once, and no orderly exit."""
    box, caught = facts.evidence.box, facts.caught
    orderly = isinstance(box, Known) and box.value.exit_mark is not None
    if caught is None or orderly or facts.was_stopped or facts.exit_code is None or facts.failure is not None:
        return None
    return caught if facts.evidence.ended.monotonic_s - caught.at_monotonic_s <= _CAUGHT_SECONDS else None


def external_kill(facts: Facts) -> Draft | None:
    """Blame somebody outside: a signal, or a SIGTERM that the server obeyed. SIGKILL needs counters that say no OOM."""
    if facts.signal is None:
        return _obeyed(facts)
    if facts.signal not in SENT:
        return None
    confidence: Confidence | None = Confidence.HIGH
    if facts.signal == signal.SIGKILL:
        confidence = _not_oom(facts)
    if confidence is None:
        return None
    if _short_node(facts):
        confidence = Confidence.MEDIUM
    return Draft(
        end_class=EndClass.EXTERNAL_KILL,
        confidence=confidence,
        summary=f"{process_words(facts)} was ended by {signal_name(facts.signal)} from outside, not by the kernel for "
        f"want of memory{in_flight_words(facts.in_flight)}",
        statements=(*status_statements(facts), *_sigterm(facts), *_quiet_counters(facts), *_short_node(facts)),
    )


def application_exit(facts: Facts) -> Draft | None:
    """Take it as the application's own end: an exit code, an orderly exit, or an uncaught exception."""
    box = facts.evidence.box
    mark = box.value.exit_mark if isinstance(box, Known) else None
    if facts.signal is not None or (facts.exit_code is None and mark is None and facts.failure is None):
        return None
    code = facts.exit_code if facts.exit_code is not None else None if mark is None else mark.status
    how = "in an orderly way" if code is None and mark is not None else f"with exit code {code}"
    if code is None and mark is None:
        how = "in a way that could not be observed"
    why = "" if facts.failure is None else f" after {failure_words(facts.failure)}"
    note = " (its own exit code, not a signal)" if code == KILLED else ""
    if facts.child is not None:
        note += child_words(facts)
    elif code != 0 and facts.counted:
        note += ", after the kernel had killed another process in its cgroup for memory"
    statements = (*status_statements(facts), *failure_statements(facts), *child_statements(facts))
    if mark is not None:
        orderly = Statement(supports=True, text="the interpreter reached its orderly exit", source="black box")
        statements = (*statements, orderly)
    return Draft(
        end_class=EndClass.APPLICATION_EXIT,
        confidence=Confidence.HIGH if facts.exit_code is not None else Confidence.MEDIUM,
        summary=f"{process_words(facts)} ended by itself {how}{note}{why}{in_flight_words(facts.in_flight)}",
        statements=statements,
    )


def unknown(facts: Facts) -> Draft:
    """Say that the evidence does not decide."""
    return Draft(
        end_class=EndClass.UNKNOWN,
        confidence=Confidence.LOW,
        summary=f"{process_words(facts)} ended {status_words(facts)}; the evidence does not say why"
        f"{in_flight_words(facts.in_flight)}",
        statements=(*status_statements(facts), *failure_statements(facts), *child_statements(facts)),
    )


def _obeyed(facts: Facts) -> Draft | None:
    if facts.sigterm_seconds is None:
        return None
    confidence = Confidence.HIGH if facts.exit_code in (0, TERMINATED) else Confidence.MEDIUM
    return Draft(
        end_class=EndClass.EXTERNAL_KILL,
        confidence=confidence,
        summary=f"{process_words(facts)} was told to stop by SIGTERM and ended {status_words(facts)} "
        f"{human_seconds(facts.sigterm_seconds)} later{in_flight_words(facts.in_flight)}",
        statements=(*status_statements(facts), *_sigterm(facts)),
    )


def _short_node(facts: Facts) -> tuple[Statement, ...]:
    """Say that a userspace killer may have sent the signal: they act when the node runs short, and leave no count."""
    ratio = facts.evidence.node_available_ratio
    if facts.signal not in _KILLERS or isinstance(ratio, Unknown) or ratio.value > SHORT_NODE_RATIO:
        return ()
    text = f"{human_share(ratio.value)} of the node's memory was available: earlyoom or its like may have sent it"
    return (Statement(supports=True, text=text, source="/proc/meminfo"),)


def _not_oom(facts: Facts) -> Confidence | None:
    """Say how surely a SIGKILL was not the OOM killer's; None where nothing speaks against it."""
    node = facts.evidence.node_oom_kill_delta
    quiet_node = isinstance(node, Known) and node.value == 0
    if isinstance(facts.kills, Unknown):
        return Confidence.MEDIUM if quiet_node else None
    if facts.kills.value.delta and not facts.spared:
        return None
    return Confidence.HIGH if quiet_node else Confidence.MEDIUM


def _sigterm(facts: Facts) -> tuple[Statement, ...]:
    if facts.sigterm_seconds is None:
        return ()
    text = f"SIGTERM arrived {human_seconds(facts.sigterm_seconds)} before the end"
    source = "black box" if facts.evidence.sigterm_wall_s is None else "oomguard run"
    return (Statement(supports=True, text=text, source=source),)


def _quiet_counters(facts: Facts) -> tuple[Statement, ...]:
    said = []
    node = facts.evidence.node_oom_kill_delta
    if isinstance(facts.kills, Known) and facts.kills.value.delta == 0:
        name = facts.own_name
        said.append(Statement(supports=True, text=f"{name} counted no OOM kill", source=f"counters of {name}"))
    if facts.spared:
        said.append(Statement(supports=True, text="the kernel log names others as the victims", source="kernel log"))
    if isinstance(node, Known) and not facts.spared:
        text = f"the node counted {node.value or 'no'} OOM kills"
        said.append(Statement(supports=node.value == 0, text=text, source="/proc/vmstat oom_kill"))
    return tuple(said)
