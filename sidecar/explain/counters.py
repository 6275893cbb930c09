"""What one dump of counters says: readings by the kernel's own names, and kills that it proves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sidecar.explain.sizes import UNLIMITED_BYTES
from sidecar.explain.values import Evidence, Field, Line, Role, Sign, seen
from sidecar.units import human_bytes
from sidecar.verdict.values import Confidence, EndClass

_EVENTS: Final = ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")
_V1: Final = (
    "hierarchical_memory_limit",
    "total_rss",
    "under_oom",
    "oom_kill_disable",
    "pgpgin",
    "total_inactive_file",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
)
_V2: Final = ("memory.current", "memory.max", "memory.peak", "oom_group_kill", "workingset_refault_anon", "anon")
_NODE: Final = ("nr_free_pages", "pgfault", "pgmajfault", "pgscan_kswapd", "pswpin")
"""/proc/vmstat has an oom_kill of its own, of the whole node since its boot: it proves no end of this model."""
FEWEST: Final = 2


@dataclass(slots=True)
class Dump:
    """Counters that stand together. None: "max", which is no limit."""

    values: dict[str, int | None] = field(default_factory=dict)
    tables: dict[str, Field] = field(default_factory=dict)  # PSI lines
    kill: Line | None = None  # where oom_kill stands
    where: str = ""  # the cgroup's path, as far as the text names it
    before: int | None = None  # oom_kill in an earlier reading of the same cgroup

    def is_again(self, other: Dump) -> bool:
        """Tell whether another dump is an earlier reading of the same cgroup: same files, counters that only rise."""
        mine, theirs = self.values.get("oom_kill"), other.values.get("oom_kill")
        same = self.where == other.where and self.values.keys() == other.values.keys()
        return same and mine is not None and theirs is not None and mine >= theirs > 0

    def readings(self) -> dict[str, Field]:
        """Give what was read, with dots as underscores; unlimited is None."""
        if len(self.values) + len(self.tables) < FEWEST:
            return {}
        events = {name: self.values.get(name) for name in _EVENTS} if self._is_events() else {}
        given: dict[str, Field] = {"version": self._version(), "events": dict(events) or None, **self.tables}
        for name, value in self.values.items():
            if name not in events:
                given[name.replace(".", "_")] = None if value is None or value >= UNLIMITED_BYTES else value
        given |= self._limits()
        given["oom_kill"] = self.values.get("oom_kill")
        current, most = self._used(), self._limit()
        if current is not None and most:
            given["usage_ratio"] = round(current / most, 4)
        return given

    def _limits(self) -> dict[str, Field]:
        own, above = self.values.get("limit"), self.values.get("hierarchical_memory_limit")
        memsw = self.values.get("hierarchical_memsw_limit")
        given: dict[str, Field] = {}
        own = self.values.get("memory.limit_in_bytes") if own is None else own
        memsw = self.values.get("memory.memsw.limit_in_bytes") if memsw is None else memsw
        memory = above if own is None else own
        if memory is not None:
            given["limit"] = None if memory >= UNLIMITED_BYTES else memory
        if memsw is not None:
            given |= {"memsw_limit": None if memsw >= UNLIMITED_BYTES else memsw, "memsw_limit_raw": memsw}
        different: dict[str, Field] = {
            name: [value, total]
            for name, value in self.values.items()
            if value is not None and (total := self.values.get(f"total_{name}")) is not None and total != value
        }
        return {**given, **({"own_vs_total_differ": different} if different else {})}

    def _is_events(self) -> bool:
        return "oom_kill" in self.values and "max" in self.values

    def _version(self) -> int | None:
        if any(name in self.values for name in _V1):
            return 1
        return 2 if any(name in self.values for name in _V2) or self._is_events() else None

    def sign(self) -> Sign | None:
        """Give a sign where the counters prove a kill. Which process, and when, they do not say."""
        kills, own, line = self.values.get("oom_kill"), self.values.get("oom"), self.kill
        if not kills or line is None or len(self.values) < FEWEST or self._is_node() or kills == self.before:
            return None
        kills -= self.before or 0
        at_own = bool(own)
        limit, peak = self._limit(), self.values.get("memory.peak")
        size = "" if limit is None else f" of {human_bytes(limit)}"
        where = f"the limit{size} of this cgroup" if at_own else "a limit here or above it, or the node's memory"
        full = peak is not None and limit is not None and peak >= limit
        evidence = [seen(f"oom_kill {kills}" + ("" if own is None else f", oom {own}"), line.file, line.number)]
        evidence += [seen(f"memory.peak reached the limit{size}", line.file, line.number)] if full else []
        return Sign(
            role=Role.CAUSE,
            source="cgroup files",
            file=line.file,
            line=line.number,
            end_class=EndClass.CGROUP_OOM,
            confidence=_confidence(evidence, at_own=at_own),
            subject="counters",
            summary=f"the kernel killed {kills} process{'es' if kills > 1 else ''} in this cgroup for {where}",
            fields=self.readings(),
            evidence=tuple(evidence),
            missing=("which process was killed and when: the kernel log",),
        )

    def _used(self) -> int | None:
        return self.values.get("memory.current", self.values.get("memory.usage_in_bytes"))

    def _limit(self) -> int | None:
        names = ("memory.max", "memory.limit_in_bytes", "hierarchical_memory_limit")
        limit = next((self.values[name] for name in names if name in self.values), None)
        return None if limit is None or limit >= UNLIMITED_BYTES else limit

    def _is_node(self) -> bool:
        cgroup = ("oom", "under_oom", "oom_kill_disable", "memory.current", "memory.max")
        return any(name in self.values for name in _NODE) and not any(name in self.values for name in cgroup)


def _confidence(evidence: list[Evidence], *, at_own: bool) -> Confidence:
    if not at_own:
        return Confidence.LOW
    return Confidence.HIGH if len(evidence) >= FEWEST else Confidence.MEDIUM
