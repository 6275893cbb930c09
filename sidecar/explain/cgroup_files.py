"""Dumps of cgroup files and of `docker stats`: readings for the answer, and kills that the counters prove."""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.sizes import UNLIMITED_BYTES
from sidecar.explain.values import Field, Line, Role, Sign, seen
from sidecar.units import human_bytes
from sidecar.verdict.values import Confidence, EndClass

_PAIR: Final = re.compile(
    r"^\s*(?:/\S*/)?((?:memory|pids|cpu|memsw)\.[a-z_.]{2,40}|[a-z_]{2,40})\s*[ =:]\s*(\d{1,20}|max)\s*$"
)
_REPR: Final = re.compile(r"u?['\"]([a-z_]{2,40})['\"]:\s?(\d{1,20})")
_EVENTS: Final = ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")
_V1: Final = (
    "hierarchical_memory_limit",
    "total_rss",
    "under_oom",
    "oom_kill_disable",
    "pgpgin",
    "total_inactive_file",
)
_V2: Final = ("memory.current", "memory.max", "memory.peak", "oom_group_kill", "workingset_refault_anon", "anon")
_KNOWN: Final = frozenset(
    (
        *(
            *_EVENTS,
            *_V1,
            *_V2,
            "cache",
            "rss",
            "swap",
            "shmem",
            "mapped_file",
            "inactive_file",
            "active_file",
            "dirty",
        ),
        *(
            "inactive_anon",
            "active_anon",
            "writeback",
            "unevictable",
            "rss_huge",
            "pgfault",
            "pgmajfault",
            "file",
            "kernel",
        ),
        *("usage", "limit", "memory_stats", "failcnt", "max_usage", "slab", "sock", "pgpgout", "oom_kill"),
    )
)
_FEWEST: Final = 2
_PATIENCE: Final = 16  # foreign lines after which a dump is over


class CgroupFilesParser:
    """Keeps the counters of one dump. A name on a line of its own ("memory.events") heads the lines below it."""

    def __init__(self) -> None:
        self._values: dict[str, int | None] = {}
        self._first: Line | None = None
        self._kill: Line | None = None
        self._quiet = _PATIENCE

    @property
    def busy(self) -> bool:
        """Tell whether a dump may go on."""
        return self._quiet < _PATIENCE

    def feed(self, line: Line) -> bool:
        """Take one line; tell whether it is a counter or a limit."""
        used = self._take(line)
        self._quiet = 0 if used else self._quiet + 1
        return used

    def skip(self) -> None:
        """Pass over a line that cannot be of a dump: a log's, with its time."""
        self._quiet += 1

    def _take(self, line: Line) -> bool:
        found = _PAIR.match(line.whole)
        if found is not None:
            return self._put(found[1], found[2], line)
        if "memory_stats" in line.whole or "hierarchical_memory_limit" in line.whole:
            return any(self._put(name, value, line) for name, value in _REPR.findall(line.whole[:16384]))
        return False

    def _put(self, name: str, value: str, line: Line) -> bool:
        known = (
            name.startswith(("memory.", "pids.", "memsw.")) or name.removeprefix("total_") in _KNOWN or name in _KNOWN
        )
        if not known and not name.startswith("hierarchical_"):
            return False
        self._first = self._first or line
        self._values.setdefault(name, None if value == "max" else int(value))
        if name == "oom_kill":
            self._kill = line
        return True

    def readings(self) -> dict[str, Field]:
        """Give what was read, by the kernel's names with dots as underscores; unlimited is None."""
        if len(self._values) < _FEWEST:
            return {}
        events = {name: self._values.get(name) for name in _EVENTS} if self._is_events() else {}
        given: dict[str, Field] = {"version": self._version(), "events": dict(events) or None}
        for name, value in self._values.items():
            if name not in events:
                given[name.replace(".", "_")] = None if value is None or value >= UNLIMITED_BYTES else value
        given |= self._limits()
        given["oom_kill"] = self._values.get("oom_kill")
        current, most = self._values.get("memory.current"), self._values.get("memory.max")
        if current is not None and most:
            given["usage_ratio"] = round(current / most, 4)
        return given

    def _limits(self) -> dict[str, Field]:
        memory = self._values.get("hierarchical_memory_limit", self._values.get("limit"))
        memsw = self._values.get("hierarchical_memsw_limit")
        given: dict[str, Field] = {}
        if memory is not None:
            given["limit"] = None if memory >= UNLIMITED_BYTES else memory
        if "hierarchical_memory_limit" in self._values and "limit" in self._values:
            given["limit"] = self._values["limit"]
        if memsw is not None:
            given |= {"memsw_limit": None if memsw >= UNLIMITED_BYTES else memsw, "memsw_limit_raw": memsw}
        different: dict[str, Field] = {
            name: [own, total]
            for name, own in self._values.items()
            if own is not None and (total := self._values.get(f"total_{name}")) is not None and total != own
        }
        return {**given, **({"own_vs_total_differ": different} if different else {})}

    def _is_events(self) -> bool:
        return "oom_kill" in self._values and "max" in self._values

    def _version(self) -> int | None:
        if any(name in self._values for name in _V1) or "under_oom" in self._values:
            return 1
        return 2 if any(name in self._values for name in _V2) or self._is_events() else None

    def finish(self) -> list[Sign]:
        """Give a sign where the counters prove a kill. Which process, and when, they do not say."""
        kills = self._values.get("oom_kill")
        if not kills or self._kill is None or len(self._values) < _FEWEST:
            return []
        line = self._kill
        limit = self._values.get("memory.max", self._values.get("hierarchical_memory_limit"))
        limit = None if limit is None or limit >= UNLIMITED_BYTES else limit
        own = self._values.get("oom")
        size = "" if limit is None else f" of {human_bytes(limit)}"
        at_own = bool(own)
        where = f"the limit{size} of this cgroup" if at_own else "a limit above it, or the node's memory"
        evidence = [seen(f"oom_kill {kills}" + ("" if own is None else f", oom {own}"), line.file, line.number)]
        peak = self._values.get("memory.peak")
        if peak is not None and limit is not None and peak >= limit:
            evidence.append(seen(f"memory.peak reached the limit{size}", line.file, line.number))
        return [
            Sign(
                role=Role.CAUSE,
                source="cgroup files",
                file=line.file,
                line=line.number,
                end_class=EndClass.CGROUP_OOM,
                confidence=Confidence.HIGH
                if at_own and len(evidence) > 1
                else Confidence.MEDIUM
                if at_own
                else Confidence.LOW,
                subject="counters",
                summary=f"the kernel killed {kills} process{'es' if kills > 1 else ''} in this cgroup for {where}",
                fields=self.readings(),
                evidence=tuple(evidence),
                missing=("which process was killed and when: the kernel log",),
            )
        ]
