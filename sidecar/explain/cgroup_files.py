"""Dumps of cgroup, PSI and memory files of the kernel, and of `docker stats`, as people paste them.

Values stand behind a blank, "=" or ":", one a line, several in a line, or as a Python or JSON mapping; names may have
their file or path before them. A name that comes again begins the next dump: another cgroup's.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from sidecar.explain.counters import Dump
from sidecar.explain.sizes import ONE, size
from sidecar.explain.values import Field, Line, Sign

_PAIR: Final = re.compile(
    r"^\s*(?:[\w./-]{0,512}/)?(?:memory\.[a-z.]{2,20}:\s?)?"
    r"[\"']?((?:memory|pids|cpu|memsw)\.[a-z_.]{2,40}|[a-z_]{2,40})[\"']?\s{0,40}[ =:]\s{0,40}(\d{1,20}|max),?\s*$"
)
_WHERE: Final = re.compile(r"/[\w./:@-]{1,512}/memory\.[a-z_.]{2,40}")
_EVENTS: Final = re.compile(r"memory\.events(?:\.local)?:?\s((?:[a-z_]{2,20} \d{1,20}\s?){2,10})")
_REPR: Final = re.compile(r"u?['\"]([a-z_]{2,40})['\"]:\s?(\d{1,20})")
_NAME: Final = re.compile(r"(?:^|[/\s])((?:memory|pids|cpu)\.[a-z_.]{2,40})(?: <==)?\s*$")
_VALUE: Final = re.compile(r"^\s*(\d{1,20}|max)\s*$")
"""A file's value on the line below its name, as `cat` and `head` print it."""
_CAMEL: Final = re.compile(
    r"^\s*[\"']?(Memory[A-Z]\w{2,30}|(?:available|usage|workingSet|rss|capacity)Bytes)[\"']?"
    r"\s?[:=]\s?(\d{1,20}|infinity),?\s*$"
)
"""`systemctl show`, and the kubelet's summary of a container."""
_STATS_ROW: Final = re.compile(rf"^(\S{{4,64}}) .{{0,200}}?[\d.]{{1,8}}%\s+({ONE}) / ({ONE})\s+([\d.]{{1,8}})%")
"""`docker stats` and `podman stats`."""
_PSI: Final = re.compile(
    r"^(?:\S{0,64}?\b(cpu|io|memory)(?:\.pressure)?[: ]{1,3})?\s*"
    r"(some|full) avg10=([\d.]{1,8}) avg60=([\d.]{1,8}) avg300=([\d.]{1,8}) total=(\d{1,20})"
)
_MEMINFO: Final = re.compile(r"^([A-Z][A-Za-z]{2,30}(?:\([a-z_]{2,12}\))?):\s{1,40}(\d{1,20}) kB\s*$")
_KNOWN: Final = frozenset(
    (
        *("low", "high", "max", "oom", "oom_kill", "oom_group_kill", "under_oom", "oom_kill_disable", "failcnt"),
        *("hierarchical_memory_limit", "hierarchical_memsw_limit", "usage", "limit", "max_usage", "nr_free_pages"),
        *("cache", "rss", "rss_huge", "swap", "shmem", "mapped_file", "dirty", "writeback", "unevictable"),
        *("inactive_anon", "active_anon", "inactive_file", "active_file", "anon", "file", "kernel", "slab", "sock"),
        *("pgpgin", "pgpgout", "pgfault", "pgmajfault", "workingset_refault_anon"),
    )
)
_PATIENCE: Final = 16  # foreign lines after which a dump is over
_NEXT: Final = 2  # lines within which an unknown name is taken as one more counter of the dump


class CgroupFilesParser:
    """Keeps the dumps of one input."""

    def __init__(self) -> None:
        self._dumps: list[Dump] = [Dump()]
        self._quiet = _PATIENCE
        self._where = ""  # the path that was named last
        self._name: str | None = None  # the file whose value may stand on the next line

    @property
    def busy(self) -> bool:
        """Tell whether a dump may go on."""
        return self._quiet < _PATIENCE

    def feed(self, line: Line) -> bool:
        """Take one line; tell whether it is a counter or a limit."""
        if (found := _WHERE.search(line.whole)) is not None:
            self._where = found[0].rpartition("/")[0]
        used = self._take(line)
        found = _NAME.search(line.whole)
        self._name = self._name if found is None and not line.whole.strip() else None if found is None else found[1]
        self._quiet = 0 if used else self._quiet + 1
        return used

    def skip(self) -> None:
        """Pass over a line that cannot be of a dump: a log's, with its time."""
        self._quiet += 1

    def readings(self) -> dict[str, Field]:
        """Give what the first dump says; `dumps` has all of them where there are several."""
        told = [found for dump in self._dumps if (found := dump.readings())]
        if not told:
            return {}
        return {**told[0], **({"dumps": [dict(one) for one in told]} if len(told) > 1 else {})}

    def finish(self) -> list[Sign]:
        """Give a sign for each dump that proves a kill."""
        return [sign for dump in self._told() if (sign := dump.sign()) is not None]

    def _told(self) -> list[Dump]:
        """Leave out the dumps of a cgroup that was read more than once: only a counter that rose tells of a kill."""
        told: list[Dump] = []
        for dump in self._dumps:
            before = told[-1] if told and dump.is_again(told[-1]) else None
            if before is None:
                told.append(dump)
            else:
                told[-1] = replace(dump, before=before.values.get("oom_kill") or 0)
        return told

    def _take(self, line: Line) -> bool:
        text = line.whole
        if (found := _PAIR.match(text)) is not None:
            return self._put(found[1], found[2], line)
        if (found := _PSI.match(text)) is not None:
            names = ("avg10", "avg60", "avg300")
            averages = dict(zip(names, map(_number, found.group(3, 4, 5)), strict=True))
            name = found[2] if found[1] in (None, "memory") else f"{found[1]}_{found[2]}"
            self._dumps[-1].tables.setdefault(name, {**averages, "total": int(found[6])})
            return True
        if (found := _MEMINFO.match(text)) is not None:
            self._dumps[-1].values.setdefault(f"{found[1]}_kb", int(found[2]))
            return True
        if (found := _VALUE.match(text)) is not None and self._name is not None:
            return self._put(self._name, found[1], line)
        if (found := _CAMEL.match(text)) is not None:
            self._dumps[-1].values.setdefault(found[1], None if found[2] == "infinity" else int(found[2]))
            return True
        return self._row(text) or self._several(text, line)

    def _row(self, text: str) -> bool:
        found = _STATS_ROW.match(text)
        if found is None:
            return False
        percent = _number(found[4])
        row: dict[str, Field] = {"usage_bytes": size(found[2]), "limit_bytes": size(found[3]), "mem_pct": percent}
        self._dumps[-1].tables.setdefault("container", found[1])
        for name, value in row.items():
            self._dumps[-1].tables.setdefault(name, value)
        return True

    def _several(self, text: str, line: Line) -> bool:
        """Take several counters of one line."""
        pairs: list[tuple[str, str]] = []
        if (found := _EVENTS.search(text)) is not None:
            pairs = re.findall(r"([a-z_]+) (\d+)", found[1])
        elif "memory_stats" in text or "hierarchical_memory_limit" in text:
            pairs = _REPR.findall(text)
        taken = [self._put(name, value, line) for name, value in pairs]
        return any(taken)

    def _put(self, name: str, value: str, line: Line) -> bool:
        dotted = name.startswith(("memory.", "pids.", "memsw."))
        known = dotted or name in _KNOWN or name.removeprefix("total_") in _KNOWN
        if not known and self._quiet >= _NEXT:
            return False
        number = None if value == "max" else int(value)
        dump = self._dumps[-1]
        if name in dump.values:
            dump = Dump()
            self._dumps.append(dump)
        dump.where = dump.where or self._where
        dump.values.setdefault(name, number)
        if name == "oom_kill":
            dump.kill = line
        return True


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
