"""The rule for ends by the kernel's OOM killer: a limit of the model's cgroup or above it, or the node's own memory."""

from __future__ import annotations

import signal
from typing import Final

from guard.model import Known
from sidecar.units import human_bytes
from sidecar.verdict.draft import Draft
from sidecar.verdict.facts import Facts
from sidecar.verdict.owner import Change, Owner, find_owner, limit_and_held
from sidecar.verdict.values import Confidence, EndClass, Statement
from sidecar.verdict.words import in_flight_words, memory_statement, process_words, status_words

_PASSED_ON: Final = 128 + signal.SIGKILL


def kernel_oom(facts: Facts) -> Draft | None:
    """Blame the OOM killer when it killed in the model's cgroup and the way it ended fits."""
    killed = facts.kills.value if isinstance(facts.kills, Known) and facts.kills.value.delta > 0 else None
    if killed is not None and killed.before is None and facts.is_unseen and facts.evidence.others_alive:
        killed = None  # it may be of an earlier life, and of anybody
    if (killed is None and facts.report is None) or not _fits(facts):
        return None
    owner = find_owner(facts.evidence, facts.report)
    statements = (
        *(() if killed is None else (_kill_statement(facts, killed),)),
        *_report_statements(facts),
        *owner.statements,
        *(one for one in (_near_limit(facts, owner),) if one is not None),
        *_contradictions(facts, owner),
    )
    return Draft(
        end_class=EndClass.GLOBAL_OOM if owner.node else EndClass.CGROUP_OOM,
        confidence=_confidence(facts, owner),
        summary=_summary(facts, owner),
        statements=statements,
        owner=owner,
    )


def _fits(facts: Facts) -> bool:
    """Tell whether it was killed, or is a shell that passes on the kill of its child. What exits by itself was not."""
    if facts.exit_code is not None:
        return facts.exit_code == _PASSED_ON
    box = facts.evidence.box
    if facts.signal is None and isinstance(box, Known) and box.value.exit_mark is not None:
        return False
    return facts.signal in (None, signal.SIGKILL) and not facts.spared


def _is_direct(facts: Facts) -> bool:
    """Tell whether this very process was the victim, as far as can be seen."""
    if not facts.evidence.seen:
        return True  # the kill itself is all that is known of it
    named = facts.report is not None and facts.evidence.node_pid in facts.report.pids
    unseen = facts.signal is None and facts.exit_code is None
    return facts.signal == signal.SIGKILL or (unseen and (named or facts.evidence.others_alive == 0))


def _confidence(facts: Facts, owner: Owner) -> Confidence:
    if isinstance(facts.kills, Known) and facts.kills.value.before is None and facts.report is None:
        return _confidence_unread(facts)
    if not _is_direct(facts):
        return Confidence.MEDIUM if owner.sure else Confidence.LOW
    if owner.sure and (owner.name is not None or facts.report is not None):
        return Confidence.HIGH
    return Confidence.MEDIUM if owner.sure or owner.name is not None else Confidence.LOW


def _confidence_unread(facts: Facts) -> Confidence:
    """The group was never read before the end: that the node counted a kill since it began makes it sure."""
    node = facts.evidence.node_oom_kill_delta
    return Confidence.HIGH if isinstance(node, Known) and _is_direct(facts) else Confidence.MEDIUM


def _summary(facts: Facts, owner: Owner) -> str:
    what = process_words(facts)
    if not _is_direct(facts):
        who = f"the kernel killed a process of the model for memory and {what} then ended {status_words(facts)}"
    else:
        who = f"the kernel killed {what}"
    return f"{who}: {_where(facts, owner)}{in_flight_words(facts.in_flight)}"


def _where(facts: Facts, owner: Owner) -> str:
    if owner.node:
        return "the node was out of memory"
    if owner.level is None:
        seen = bool(facts.evidence.levels)
        hidden = "a cgroup above it that cannot be seen here" if seen else "its own cgroup, or one above it"
        named = hidden if owner.name is None else owner.name
        return f"out of memory at the limit of {named}"
    limit, _ = limit_and_held(owner.level.after.memory)
    size = "" if limit is None else f" ({human_bytes(limit)})"
    whose = "its own limit" if owner.level.after.depth == 0 else "the limit of its ancestor"
    return f"out of memory at {whose} {owner.level.after.name}{size}"


def _kill_statement(facts: Facts, killed: Change) -> Statement:
    pair = facts.evidence.levels[0] if facts.evidence.levels else None
    if pair is None or facts.by_runner:
        text = f"oom_kill {killed.words} in the cgroup of its runner, from its start to its end"
        return Statement(supports=True, text=text, source="oomguard run")
    own = pair
    v1 = isinstance(own.after.memory.oom_control, Known)
    file = f"{'memory.oom_control' if v1 else 'memory.events'} of {own.after.name}"
    text = f"oom_kill {killed.words} in {file}"
    if killed.delta > 1:
        text += " (a group kill counts its first victim twice)"
    return Statement(supports=True, text=text, source=file)


def _report_statements(facts: Facts) -> tuple[Statement, ...]:
    if facts.report is None:
        return ()
    source = f"kernel log, record {facts.report.sequence}"
    if facts.by_time:
        source += ", by its time: the path of the model's group is hidden here"
    return tuple(
        Statement(
            supports=True,
            text=f"the kernel log names process {one.pid} ({one.comm}) as killed"
            + ("" if one.anon_rss_bytes is None else f", with {human_bytes(one.anon_rss_bytes)} anonymous memory"),
            source=source,
        )
        for one in facts.report.killed
    )


def _near_limit(facts: Facts, owner: Owner) -> Statement | None:
    pair = owner.level or (facts.evidence.levels[0] if facts.evidence.levels and not owner.node else None)
    return None if pair is None else memory_statement(pair)


def _contradictions(facts: Facts, owner: Owner) -> tuple[Statement, ...]:
    said: list[tuple[str, str]] = []
    node, box = facts.evidence.node_oom_kill_delta, facts.evidence.box
    if isinstance(facts.kills, Known) and facts.kills.value.delta == 0:
        said.append(("its own cgroup counted no OOM kill", f"counters of {facts.own_name}"))
    if isinstance(node, Known) and node.value == 0:
        said.append(("the node counted no OOM kill", "/proc/vmstat oom_kill"))
    if isinstance(box, Known) and box.value.exit_mark is not None:
        said.append(("the interpreter reached its orderly exit", "black box"))
    if facts.report is not None and _limits_disagree(facts, owner):
        said.append(("the counters say that it was another limit than the kernel log names", "counters"))
    return tuple(Statement(supports=False, text=text, source=source) for text, source in said)


def _limits_disagree(facts: Facts, owner: Owner) -> bool:
    """Tell whether the counters alone would surely have named another owner than the kernel log did."""
    by_counters = find_owner(facts.evidence, None)
    return by_counters.sure and (by_counters.node, by_counters.level) != (owner.node, owner.level)
