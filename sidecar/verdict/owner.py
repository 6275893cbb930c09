"""Whose limit it was: own level, a visible ancestor, a hidden one, or the whole node.

v2: `oom` in memory.events counts at the level whose limit hit and at all above it, `oom_kill` at the victim's level and
above. So the lowest level whose `oom` rose owns the limit; memory.events.local (5.2+) counts at the owner alone.
v1 has no such counter: memory.failcnt rises at the level whose limit refused a page. Reclaim at a limit raises it
too, so with several the one that was nearest to its limit is taken, and said to be less sure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from guard.kernel import memcg
from guard.kernel.values import CgroupVersion, MemoryLevel
from guard.model import Known, Reading, Unknown, Unlimited, Why
from sidecar.units import human_share
from sidecar.verdict.kernel_report.values import OomReport
from sidecar.verdict.values import EndEvidence, LevelsBefore, Statement

EMPTY_NODE_RATIO: Final = 0.05
"""MemAvailable of MemTotal: at a global OOM nearly nothing is available."""
ROOMY_NODE_RATIO: Final = 0.10
"""With a tenth of the node available its own OOM killer has no reason to act."""


@dataclass(frozen=True, slots=True)
class Change:
    """A counter before and after. `before` None: it was not read before; some of it may be from before this life."""

    before: int | None
    after: int

    @property
    def delta(self) -> int:
        """Give by how much it rose, at most; one that went back was reset and counts from zero."""
        before = self.before or 0
        return self.after - before if self.after >= before else self.after

    @property
    def words(self) -> str:
        """Say it: "rose from 1 to 2"."""
        if self.before is None:
            return f"stood at {self.after} when it was first read, at the end,"
        return f"rose from {self.before} to {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose limit it was. `level` None: the node's own memory if `node`, else an ancestor that nobody here can see."""

    node: bool
    sure: bool
    level: LevelsBefore | None
    name: str | None
    statements: tuple[Statement, ...]


def kills(pair: LevelsBefore) -> Reading[Change]:
    """Give the change of the level's count of OOM kills."""
    return _change(memcg.oom_kills(pair.before.memory), memcg.oom_kills(pair.after.memory))


def find_owner(evidence: EndEvidence, report: OomReport | None) -> Owner:
    """Say whose limit it was, given that the kernel's OOM killer struck. The kernel log decides where it is known."""
    if report is not None and (report.global_oom or report.oom_memcg is not None):
        return _by_report(evidence, report)
    risen = [(pair, said) for pair in evidence.levels if (said := _limit_hit(pair)) is not None]
    if not risen:
        return _unseen(evidence)
    if risen[0][0].after.memory.version is CgroupVersion.V2:
        pair, said = risen[0]
        return Owner(node=False, sure=_is_read(pair), level=pair, name=pair.after.name, statements=(said,))
    pair, said = min(risen, key=lambda one: _nearness(one[0]))
    sure = len(risen) == 1 and _is_read(pair)
    return Owner(node=False, sure=sure, level=pair, name=pair.after.name, statements=(said,))


def _by_report(evidence: EndEvidence, report: OomReport) -> Owner:
    source = f"kernel log, record {report.sequence}"
    if report.global_oom:
        said = Statement(supports=True, text="the kernel log says that the node was out of memory", source=source)
        return Owner(node=True, sure=True, level=None, name=None, statements=(said,))
    text = (
        f"the kernel log names {report.oom_memcg} as the group whose limit it was, {report.task_memcg} as the victim's"
    )
    pair = _named(evidence, report)
    name = report.oom_memcg if pair is None else pair.after.name
    said = Statement(supports=True, text=text, source=source)
    return Owner(node=False, sure=True, level=pair, name=name, statements=(said,))


def _named(evidence: EndEvidence, report: OomReport) -> LevelsBefore | None:
    """Find the level by its distance above the victim's: unlike names it is the same in every cgroup namespace."""
    owner, victim = _parts(report.oom_memcg), _parts(report.task_memcg)
    above = len(victim) - len(owner)
    if above < 0 or victim[: len(owner)] != owner:
        return None
    return next((pair for pair in evidence.levels if pair.after.depth == above), None)


def _parts(path: str | None) -> list[str]:
    return [part for part in (path or "").split("/") if part]


def _hits(pair: LevelsBefore) -> tuple[str, str, Reading[Change]]:
    """Give the counter of hits of the level's own limit, its file, and its change."""
    before, after = pair.before.memory, pair.after.memory
    if after.version is CgroupVersion.V1:
        return "failcnt", "memory.failcnt", _change(before.failcnt, after.failcnt)
    local = _change(_line(before.events_local, "oom"), _line(after.events_local, "oom"))
    if isinstance(local, Known):
        return "oom", "memory.events.local", local
    return "oom", "memory.events", _change(_line(before.events, "oom"), _line(after.events, "oom"))


def _limit_hit(pair: LevelsBefore) -> Statement | None:
    """Say by which counter the level's own limit was hit; None when it was not, or is not known."""
    counter, file, change = _hits(pair)
    if isinstance(change, Unknown) or change.value.delta == 0:
        return None
    text = f"{counter} {change.value.words} in {file} of {pair.after.name}"
    return Statement(supports=True, text=text, source=f"{file} of {pair.after.name}")


def _unseen(evidence: EndEvidence) -> Owner:
    """No visible limit was hit: one that cannot be seen, or the node itself was out of memory."""
    ratio = evidence.node_available_ratio
    empty = isinstance(ratio, Known) and ratio.value < EMPTY_NODE_RATIO
    roomy = isinstance(ratio, Known) and ratio.value >= ROOMY_NODE_RATIO
    blind = evidence.hidden_ancestors or any(_is_blind(pair) for pair in evidence.levels)
    said = Statement(supports=True, text="no visible level hit its own limit", source="counters of the visible levels")
    words = () if isinstance(ratio, Unknown) else (_node_words(ratio.value, supports=empty or (blind and roomy)),)
    sure = roomy if blind else empty
    return Owner(node=empty or not blind, sure=sure, level=None, name=None, statements=(said, *words))


def _node_words(ratio: float, *, supports: bool) -> Statement:
    text = f"{human_share(ratio)} of the node's memory was available in the last sample"
    return Statement(supports=supports, text=text, source="/proc/meminfo")


def _is_read(pair: LevelsBefore) -> bool:
    """Whether the level's own limit was hit in this life for sure: its counter was read before."""
    change = _hits(pair)[2]
    return isinstance(change, Known) and change.value.before is not None


def _is_blind(pair: LevelsBefore) -> bool:
    """Tell a level that may have a limit but does not say whether it was hit. The root of v2 has neither file."""
    limit = pair.after.memory.max_bytes
    if isinstance(limit, Unknown):
        return limit.why is not Why.MISSING
    return not isinstance(limit.value, Unlimited) and isinstance(_hits(pair)[2], Unknown)


def _nearness(pair: LevelsBefore) -> float:
    """Give the headroom before the end as a share of the limit; unknown and unlimited come last."""
    limit, held = pair.before.memory.max_bytes, memcg.unreclaimable_bytes(pair.before.memory)
    if isinstance(limit, Unknown) or isinstance(limit.value, Unlimited) or isinstance(held, Unknown):
        return float("inf")
    return 1.0 - held.value / limit.value if limit.value else 0.0


def _line(table: Reading[Mapping[str, int]], name: str) -> Reading[int]:
    if isinstance(table, Unknown):
        return table
    value = table.value.get(name)
    return Unknown(Why.MISSING, name) if value is None else Known(value)


def _change(before: Reading[int], after: Reading[int]) -> Reading[Change]:
    if isinstance(after, Unknown):
        return after
    if isinstance(before, Known):
        return Known(Change(before.value, after.value))
    if before.why is not Why.NOT_SAMPLED:
        return before
    return Known(Change(None if after.value else 0, after.value))  # a counter at 0 has never moved


def limit_and_held(level: MemoryLevel) -> tuple[int | None, int | None]:
    """Give the limit and what reclaim could not take, in bytes; None where unlimited or unknown."""
    limit, held = level.max_bytes, memcg.unreclaimable_bytes(level)
    known = limit.value if isinstance(limit, Known) and not isinstance(limit.value, Unlimited) else None
    return known, held.value if isinstance(held, Known) else None
