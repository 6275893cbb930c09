"""The rules that follow from a supervisor's word: why it stopped the container, or that its runtime saw an OOM kill."""

from __future__ import annotations

import signal
from typing import Final

from guard.model import Known
from sidecar.verdict.draft import Draft
from sidecar.verdict.facts import CODE_OF_A_SIGNAL, Facts, signal_name
from sidecar.verdict.supervisor_values import SupervisorEnd, SupervisorWord, SupervisorWordKind
from sidecar.verdict.values import Confidence, EndClass, Statement
from sidecar.verdict.words import in_flight_words, process_words, status_words

_KINDS: Final = {  # in this order: an eviction is also told as a stop, and so is a failed probe
    SupervisorWordKind.USERSPACE_OOM: (EndClass.USERSPACE_OOM, "was killed by a userspace OOM killer"),
    SupervisorWordKind.EVICTION: (EndClass.EVICTION, "was evicted"),
    SupervisorWordKind.LIVENESS_KILL: (EndClass.HEALTH_CHECK, "failed its liveness probe and was stopped"),
    SupervisorWordKind.STARTUP_KILL: (EndClass.HEALTH_CHECK, "was not started in time and was stopped"),
    SupervisorWordKind.WATCHDOG: (EndClass.HEALTH_CHECK, "did not call its watchdog in time and was stopped"),
    SupervisorWordKind.DELETION: (EndClass.DELETION, "was stopped by its supervisor, as somebody told it to"),
}
_AFTER_SECONDS: Final = 2.0
"""Supervisors print whole seconds. A word from later is about what followed from the end."""
_WATCHDOG_SIGNAL: Final = signal.SIGABRT  # systemd.service(5), WatchdogSignal=


def supervised(facts: Facts) -> Draft | None:
    """Take the supervisor's word for why it stopped the container, if it said so before the end."""
    for kind, (end_class, deed) in _KINDS.items():
        found = next(((end, word) for end, word in _words(facts) if word.kind is kind), None)
        if found is None or not (facts.exit_code is not None or _fits(facts, kind)):
            continue
        end, word = found
        return Draft(
            end_class=end_class,
            confidence=Confidence.HIGH if _fits(facts, kind) else Confidence.MEDIUM,
            summary=f"{process_words(facts)} {deed} ({word.text}), it ended {status_words(facts)}"
            f"{in_flight_words(facts.in_flight)}",
            statements=(Statement(supports=True, text=word.text, source=end.source),),
        )
    return None


def runtime_oom(facts: Facts) -> Draft | None:
    """Take the runtime's word for an OOM kill that no counter in sight tells of: its own look is closer, or later."""
    said = [end for end in facts.evidence.supervisor if end.oom_killed]
    node = [word for _, word in _words(facts) if word.kind is SupervisorWordKind.NODE_OOM]
    if not (said or node) or facts.signal not in (None, signal.SIGKILL) or facts.exit_code is not None:
        return None
    words = [(word.text, end.source) for end, word in _words(facts) if word.kind is SupervisorWordKind.NODE_OOM]
    statements = [Statement(supports=True, text=text, source=source) for text, source in words]
    if isinstance(facts.kills, Known) and facts.kills.value.delta == 0:
        name = facts.own_name
        statements.append(Statement(supports=False, text=f"{name} counted no OOM kill", source=f"counters of {name}"))
    where = "the node was out of memory" if node else "at a memory limit that is not seen here"
    return Draft(
        end_class=EndClass.GLOBAL_OOM if node else EndClass.CGROUP_OOM,
        confidence=Confidence.MEDIUM,
        summary=f"{process_words(facts)} was killed for memory, as its supervisor says: {where}"
        f"{in_flight_words(facts.in_flight)}",
        statements=tuple(statements),
    )


def supervisor_statements(facts: Facts, draft: Draft) -> tuple[Statement, ...]:
    """Say what supervisors say of the end, and where that contradicts what was seen or the class."""
    return tuple(one for end in facts.evidence.supervisor for one in (*_said(end), *_against(facts, draft, end)))


def _words(facts: Facts) -> list[tuple[SupervisorEnd, SupervisorWord]]:
    latest = facts.evidence.ended.wall_s + _AFTER_SECONDS
    every = ((end, word) for end in facts.evidence.supervisor for word in end.words)
    return [(end, word) for end, word in every if word.at_wall_s is None or word.at_wall_s <= latest]


def _fits(facts: Facts, kind: SupervisorWordKind) -> bool:
    watchdog = kind is SupervisorWordKind.WATCHDOG and facts.signal == _WATCHDOG_SIGNAL
    return facts.was_stopped or watchdog


def _said(end: SupervisorEnd) -> tuple[Statement, ...]:
    told = (
        None if end.exit_code is None else f"exit code {end.exit_code}",
        None if end.signal is None else f"ended by {signal_name(end.signal)}",
        None if end.reason is None else f"reason {end.reason}",
        None if end.oom_killed is None else f"OOMKilled={str(end.oom_killed).lower()}",
        None if end.restart_count is None else f"{end.restart_count} restarts",
    )
    text = ", ".join(one for one in told if one is not None)
    return (Statement(supports=True, text=f"it says: {text}", source=end.source),) if text else ()


def _against(facts: Facts, draft: Draft, end: SupervisorEnd) -> tuple[Statement, ...]:
    said = []
    if _disagrees(facts, end):
        said.append(f"it says another end than the one that was seen ({status_words(facts)})")
    by_kernel = draft.end_class in (EndClass.CGROUP_OOM, EndClass.GLOBAL_OOM)
    if by_kernel and end.oom_killed is False and facts.report is None:
        said.append("it says that the container was not OOM-killed; runtimes do not see every kill")
    if not by_kernel and end.oom_killed and not facts.counted:
        said.append("it says that a process of the container was OOM-killed")
    return tuple(Statement(supports=False, text=text, source=end.source) for text in said)


def _disagrees(facts: Facts, end: SupervisorEnd) -> bool:
    """Whether the wait status that was seen is another than the supervisor's, which writes 128 + n for a signal."""
    if facts.status_source is not None or (end.exit_code is None and end.signal is None):
        return False
    told = end.exit_code if end.signal is None else CODE_OF_A_SIGNAL + end.signal
    seen = facts.exit_code if facts.signal is None else CODE_OF_A_SIGNAL + facts.signal
    return seen is not None and seen != told
