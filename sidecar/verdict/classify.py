"""Why a process ended: the first rule that applies gives the class, contradictions lower the confidence.

Order: cause before consequence. A kernel OOM kill comes first, as signals, probe failures and exit codes follow from
it; then who had it stopped: a killer, a supervisor; then a card that failed, which probes fail for; then the probe;
then what failed inside; the plain facts of the exit come last.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from sidecar.verdict.device import device_reset, device_statements
from sidecar.verdict.draft import Draft, sureness
from sidecar.verdict.ends import allocation_failure, application_exit, external_kill, health_check, unknown
from sidecar.verdict.facts import Facts, digest
from sidecar.verdict.kernel_oom import kernel_oom
from sidecar.verdict.native import crash_signal, shm_exhausted
from sidecar.verdict.supervisor import runtime_oom, supervised, supervisor_statements
from sidecar.verdict.values import Confidence, EndClass, EndEvidence, Statement, Verdict
from sidecar.verdict.words import fields, missing, next_steps, survivors_words

RULES: Final = (
    *(kernel_oom, runtime_oom, supervised, device_reset, health_check),
    *(allocation_failure, shm_exhausted, crash_signal, external_kill, application_exit),
)
_BY_KERNEL: Final = (EndClass.CGROUP_OOM, EndClass.GLOBAL_OOM)


def classify(evidence: EndEvidence) -> Verdict:
    """Classify one end. Total: any evidence gives a verdict, `unknown` where it does not decide."""
    facts = digest(evidence)
    drafts = (draft for rule in RULES if (draft := rule(facts)) is not None)
    draft = next(drafts, None) or unknown(facts)
    statements = (*draft.statements, *_beside(facts, draft))
    statements = tuple(dict.fromkeys(statements))
    return Verdict(
        end_class=draft.end_class,
        confidence=sureness(_capped(facts, draft), statements),
        summary=_sentence(draft.summary + survivors_words(facts)),
        level=None if draft.owner is None else draft.owner.name,
        statements=statements,
        missing=missing(facts),
        next_steps=next_steps(draft.end_class, facts, draft.owner),
        fields=MappingProxyType(fields(facts, draft.owner)),
    )


def _capped(facts: Facts, draft: Draft) -> Confidence:
    """What rests on an exit code 128 + n of a supervisor alone is never sure: it may be the server's own."""
    rests = draft.end_class in (EndClass.EXTERNAL_KILL, EndClass.CRASH_SIGNAL, EndClass.SHM_EXHAUSTED)
    high = draft.confidence is Confidence.HIGH
    return Confidence.MEDIUM if high and rests and facts.inferred else draft.confidence


def _beside(facts: Facts, draft: Draft) -> tuple[Statement, ...]:
    """Give what else was seen around the end, for and against."""
    gpu = () if draft.end_class in _BY_KERNEL else device_statements(facts)
    return (*gpu, *_kills_beside(facts, draft), *supervisor_statements(facts, draft))


def _kills_beside(facts: Facts, draft: Draft) -> tuple[Statement, ...]:
    """Say that the OOM killer struck in its cgroup as well, where that is neither the class nor explained."""
    if draft.end_class in _BY_KERNEL or facts.spared or not facts.counted:
        return ()
    name = facts.own_name
    text = f"{name} counted {facts.counted} OOM kills around the end"
    return (Statement(supports=False, text=text, source=f"counters of {name}"),)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
