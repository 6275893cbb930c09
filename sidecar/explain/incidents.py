"""Signs to incidents: one out of many lines, several where there were several, and one confidence for each."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from sidecar.explain.joining import joins, rank
from sidecar.explain.steps import next_steps
from sidecar.explain.values import Evidence, Field, Incident, Role, Sign, against
from sidecar.verdict.values import Confidence, EndClass

_RECENT: Final = 64
"""Incidents that a new sign is compared with: keeps a log of endless failures linear."""
_EVIDENCE: Final = 24
_LOWER: Final = {Confidence.HIGH: Confidence.MEDIUM, Confidence.MEDIUM: Confidence.LOW, Confidence.LOW: Confidence.LOW}


def incidents(signs: Iterable[Sign]) -> tuple[Incident, ...]:
    """Put the signs of all inputs together. Consequences and context without a cause or an end give none."""
    groups: list[list[Sign]] = []
    loose: list[Sign] = []
    for sign in signs:
        if sign.role is Role.CONTEXT:
            loose.append(sign)
            continue
        homes = [one for one in reversed(groups[-_RECENT:]) if joins(_few(one), sign)]
        named = (one for one in homes if any(sign.keys & other.keys for other in _few(one)))
        home = next(named, next(iter(homes), None))
        if home is not None:
            home.append(sign)
        else:
            groups.append([sign])
    _merge(groups)
    ended = [one for one in groups if any(sign.role is not Role.CONSEQUENCE for sign in one)]
    return tuple(_incident(group, _beside(group, loose)) for group in ended)


def _few(group: list[Sign]) -> list[Sign]:
    """Give the first and the last signs of an incident that is told again and again."""
    return group if len(group) <= _RECENT else [*group[: _RECENT // 2], *group[-_RECENT // 2 :]]


def _merge(groups: list[list[Sign]]) -> None:
    """Take in what came before its cause: consequences, and ends that a later cause explains."""
    for at in range(len(groups) - 1, -1, -1):
        group = groups[at]
        if any(sign.role is Role.CAUSE for sign in group):
            continue
        home = next(
            (
                other
                for other in groups[max(0, at - _RECENT) : at + _RECENT]
                if other is not group and all(joins(_few(other), sign) for sign in _few(group))
            ),
            None,
        )
        if home is not None:
            home.extend(group)
            del groups[at]


def _beside(group: list[Sign], loose: list[Sign]) -> list[Sign]:
    """Pick the context that is about the same thing: the same parser in the same file, near the incident."""
    lead = min(group, key=rank)
    return [
        one
        for one in loose
        if one.file == lead.file
        and one.subject != "harmless"
        and (
            one.source == lead.source or one.subject.startswith(lead.subject or "?") or one.end_class is lead.end_class
        )
        and abs(one.line - lead.line) < 1000  # noqa: PLR2004 - about a screenful of events or a start-up log
    ]


def _incident(group: list[Sign], beside: list[Sign]) -> Incident:
    lead = min(group, key=rank)  # the first of the lowest rank: signs come in the order of their lines
    others = [one for one in group if one is not lead]
    evidence = _evidence([lead, *others, *beside])
    against = (*_against(lead, others),)
    evidence = (*evidence, *against)
    confidence = lead.confidence
    for _ in [one for one in evidence if not one.supports][:2]:
        confidence = _LOWER[confidence]
    fields = _fields(lead, [*others, *beside])
    stamp = lead.stamp or next((one.stamp for one in others if one.stamp is not None), None)
    return Incident(
        end_class=lead.end_class,
        confidence=confidence,
        at=None if stamp is None else stamp.text,
        summary=_sentence(lead.summary, others),
        fields=MappingProxyType(fields),
        evidence=evidence,
        missing=tuple(dict.fromkeys((*lead.missing, *_missing(lead, others)))),
        next_steps=tuple(dict.fromkeys((*lead.next_steps, *next_steps(lead.end_class, fields)))),
    )


def _evidence(signs: list[Sign]) -> tuple[Evidence, ...]:
    said = [one for sign in signs for one in sign.evidence]
    return tuple(dict.fromkeys(said))[:_EVIDENCE]


def _against(lead: Sign, others: list[Sign]) -> list[Evidence]:
    """Find what other sources say against the class."""
    said = []
    for one in others:
        proven = bool(lead.keys & one.keys)
        if lead.end_class is EndClass.CGROUP_OOM and one.fields.get("oom_killed_flag") is False and not proven:
            text = "the runtime says OOMKilled=false (not all see children, or the pod's own limit)"
            said.append(against(text, one.file, one.line))
        if lead.end_class in (EndClass.CGROUP_OOM, EndClass.GLOBAL_OOM) and one.fields.get("exit_code") == 0:
            said.append(against("the main process ended with exit code 0", one.file, one.line))
    return said


def _fields(lead: Sign, others: list[Sign]) -> dict[str, Field]:
    """Give the lead's fields, completed by the others'. Lists of pids are put together; counts are added nowhere."""
    fields = dict(lead.fields)
    for one in others:
        for name, value in one.fields.items():
            mine = fields.get(name)
            if mine is None or (mine is False and value is True):
                fields[name] = value
            elif name in ("killed_pids", "ranks", "workers") and isinstance(mine, list) and isinstance(value, list):
                fields[name] = [*mine, *(item for item in value if item not in mine)]
    same = [one for one in others if one.subject == lead.subject and one.role is lead.role]
    fields["occurrences"] = 1 + len(same)
    return fields


def _missing(lead: Sign, others: list[Sign]) -> list[str]:
    ended = lead.role is Role.END or any(one.role is not Role.CAUSE for one in others) or lead.subject == "kernel"
    killed = lead.end_class in (EndClass.USERSPACE_OOM, EndClass.HEALTH_CHECK, EndClass.EVICTION, EndClass.DELETION)
    if ended or killed or lead.end_class is EndClass.CGROUP_OOM:
        return []
    return ["whether and how the process ended afterwards: exit code or container state"]


def _sentence(summary: str, others: list[Sign]) -> str:
    ends = [one.summary for one in others if one.role is Role.END and one.summary and one.summary != summary]
    text = f"{summary}; then {ends[0]}" if ends else summary
    return text[:1].upper() + text[1:]
