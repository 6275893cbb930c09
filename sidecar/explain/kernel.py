"""OOM reports of the kernel as signs, with what each says and lacks."""

from __future__ import annotations

import re
from dataclasses import replace

from sidecar.explain.patterns import quote
from sidecar.explain.prefix import stamp_within
from sidecar.explain.values import Evidence, Field, Line, Role, Sign, against, seen
from sidecar.units import human_bytes
from sidecar.verdict.kernel_report.assemble import Assembler, KernelLine
from sidecar.verdict.kernel_report.paths import words_of
from sidecar.verdict.kernel_report.values import Killed, OomReport, Scope, Task
from sidecar.verdict.values import Confidence, EndClass

_HIDDEN = "other kills of that moment: the kernel log is rate limited"
_CLASSES = {Scope.CGROUP: EndClass.CGROUP_OOM, Scope.GLOBAL: EndClass.GLOBAL_OOM}
_LOWER = {Confidence.HIGH: Confidence.MEDIUM, Confidence.MEDIUM: Confidence.LOW, Confidence.LOW: Confidence.LOW}


_WORDS = re.compile(
    r"oom-kill:constraint=|Tasks? in /|(?:memory(?:\+swap)?|swap|kmem): usage \d"
    r"|Memory cgroup (?:stats for|out of memory)|\bOut of memory|Killed process \d|CPU: \d+ (?:UID: \d+ )?PID: "
    r"|oom_reaper: reaped|(?:oom_kill_process|dump_header): \d"
)
"""How lines of a report begin, to be found behind what an unknown log store put before them."""
_INVOKED = " invoked oom-killer"
_NAME = re.compile(r"[\w./:@()#+-]{1,64}$")
_STORE = re.compile(r"[\[\]{}\"'|>=\t,]|:\s|:$")
"""What stands before a line in a log store and in no name of a program."""
_REST = "\"'}]│ \t,\\"


def bare(line: Line) -> Line:
    """Take off what an unknown log store put around a line of the kernel, and read the time in it.

    Fluent Bit, Loki, CSV exports, records of JSON that are spread over lines, grep, pdsh: all are alike in this.
    """
    at = -1 if line.kernel else _begins(line.text)
    head = line.text[: max(at, 0)]
    if _STORE.search(head) is None:
        return line
    return replace(line, text=line.text[at:].rstrip(_REST), stamp=line.stamp or stamp_within(head))


def _begins(text: str) -> int:
    """Give where a line of a report begins, -1 where none does."""
    asked = text.find(_INVOKED)
    if asked > 0:
        name = _NAME.search(text, max(asked - 64, 0), asked)
        return -1 if name is None else name.start()
    found = _WORDS.search(text)
    return -1 if found is None else found.start()


class KernelParser:
    """Feeds lines to the assembler and turns its reports into signs."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._assembler = Assembler()
        self._told: dict[int, Line] = {}  # the lines that begin or name something, for showing

    @property
    def busy(self) -> bool:
        """Tell whether lines that mean nothing by themselves may belong to a report now."""
        return self._assembler.busy

    def feed(self, line: Line) -> bool:
        """Take one line; tell whether it belongs to a report."""
        seconds = None if line.stamp is None else line.stamp.seconds
        text = line.text.strip() if line.text[:1] in " \t" else line.text
        used = self._assembler.feed(KernelLine(text, seconds, line.number, line.caller))
        if used and len(self._told) < 100_000:  # noqa: PLR2004 - bounds memory on a log that is one long storm
            self._told[line.number] = line
        return used

    def finish(self) -> list[Sign]:
        """Give one sign for each report."""
        signs: list[Sign] = []
        earlier: list[OomReport] = []
        for report in self._assembler.finish():
            signs.append(self._sign(report, earlier))
            earlier.append(report)
        return signs

    def _sign(self, report: OomReport, earlier: list[OomReport]) -> Sign:
        scope, guess = report.scope, None
        if scope is None and not report.mem_info:
            guess = next((one for one in reversed(earlier) if _is_alike(report, one)), None)
            scope = None if guess is None else guess.scope
        end_class = EndClass.UNKNOWN if scope is None else _CLASSES[scope]
        first = self._told.get(report.sequence)
        evidence = self._evidence(report, guess)
        return Sign(
            role=Role.CAUSE,
            source="kernel log",
            file=self._file,
            line=report.sequence,
            end_class=end_class,
            confidence=_confidence(report, first, guessed=guess is not None),
            subject="kernel",
            summary=_summary(report, end_class),
            stamp=None if first is None or not report.shared_clock else first.stamp,
            keys=_keys(report),
            pids=report.pids,
            fields=fields_of(report),
            evidence=evidence,
            missing=_missing(report, end_class),
        )

    def _evidence(self, report: OomReport, guess: OomReport | None) -> tuple[Evidence, ...]:
        said = [
            seen(quote(self._told[number].text), self._file, number)
            for number in dict.fromkeys(sorted(report.lines.values()))
            if number in self._told
        ]
        if report.memcg_frames:
            said.append(seen("the call trace goes through the memory controller", self._file, report.sequence))
        if guess is not None:
            text = "the same program with the same oom_score_adj hit such a limit earlier in this log"
            said.append(seen(text, self._file, guess.sequence))
        if report.oom_memcg is not None and report.prefix is Scope.GLOBAL:
            text = "the kill line speaks of the node's memory, the summary of a cgroup's limit"
            said.append(against(text, self._file, report.sequence))
        return tuple(said)


def fields_of(report: OomReport) -> dict[str, Field]:
    """Give everything that the report says, by the kernel's own words; None where it does not say it."""
    victim = _victim(report)
    return {
        "killer": "kernel",
        **_asker(report),
        "victim_pid": victim.pid if victim else report.victim_pid,
        "comm": victim.comm if victim and victim.comm else report.victim_comm,
        "score": report.score,
        "selected_pid": report.selected_pid,
        "selected_comm": report.selected_comm,
        **_victim_numbers(report, victim),
        "victims": _victims(report),
        "distinct_victims": len(report.pids),
        "group_victims": [one.pid for one in report.killed] if report.group else None,
        "oom_group": report.group,
        "kill_storm": not report.group and len(report.killed) > 2,  # noqa: PLR2004 - more than a process and its child
        "skipped_pids": list(report.skipped) or None,
        "reaped": [{"pid": pid, "shmem_rss_kb": left} for pid, left in report.reaped.items()] or None,
        "no_killable_processes": report.no_killable,
        "callbacks_suppressed": report.suppressed,
        **_paths(report),
        **_numbers(report),
        **_table(report, victim),
        "timestamps_unreliable": not report.shared_clock,
    }


def _asker(report: OomReport) -> dict[str, Field]:
    return {
        "invoker": report.invoker,
        "invoker_pid": report.invoker_pid,
        "oom_score_adj_invoker": report.invoker_oom_score_adj,
        "gfp_mask": report.gfp_mask,
        "order": report.order,
        "kernel": report.kernel,
        "constraint": report.constraint,
        "nodemask": report.nodemask,
        "cpuset": report.cpuset,
        "mems_allowed": report.mems_allowed,
        "subtype": {"CONSTRAINT_CPUSET": "cpuset", "CONSTRAINT_MEMORY_POLICY": "numa_mempolicy"}.get(
            report.constraint or ""
        ),
        "global_oom_flag": report.global_flag,
        "kmem_cache_memcg_id": report.slab_memcg,
    }


def _victim(report: OomReport) -> Killed | None:
    chosen = [one for one in report.killed if one.pid == report.victim_pid]
    return next(iter((*chosen, *report.killed)), None)


def _victim_numbers(report: OomReport, victim: Killed | None) -> dict[str, Field]:
    names = ("total_vm_kb", "anon_rss_kb", "file_rss_kb", "shmem_rss_kb", "pgtables_kb", "oom_score_adj")
    numbers: dict[str, Field] = {name: getattr(victim, name) if victim else None for name in names}
    return {**numbers, "uid": report.victim_uid if victim is None or victim.uid is None else victim.uid}


def _victims(report: OomReport) -> Field:
    if report.killed:
        return [
            {"pid": one.pid, "comm": one.comm, "total_vm_kb": one.total_vm_kb, "anon_rss_kb": one.anon_rss_kb}
            for one in report.killed
        ]
    if report.victim_pid is None:
        return None
    return [{"pid": report.victim_pid, "comm": report.victim_comm, "score": report.score}]


def _paths(report: OomReport) -> dict[str, Field]:
    owner = report.oom_memcg or (report.stats_memcg if report.scope is Scope.CGROUP else None)
    victim = words_of(report.task_memcg or owner or "")
    by_owner = words_of(owner or "")
    return {
        "oom_memcg": owner,
        "task_memcg": report.task_memcg,
        "memcg_path": report.stats_memcg,
        "pod_uid": victim.pod_uid or by_owner.pod_uid,
        "container_id": victim.container_id or by_owner.container_id,
        "outer_container_id": victim.outer_container_id,
        "container_id_from_cpuset": words_of(report.cpuset or "").container_id,
        "qos": victim.qos or by_owner.qos,
    }


def _numbers(report: OomReport) -> dict[str, Field]:
    """Give usage and limits in kB as printed; that a limit is none is said beside it."""
    given: dict[str, Field] = {}
    for name, usage in report.usage.items():
        key = {"memory": "memory", "memory+swap": "memsw", "swap": "swap", "kmem": "kmem"}[name]
        given |= {
            f"{key}_usage_kb": usage.usage_kb,
            f"{key}_limit_kb": usage.limit_kb,
            f"{key}_limit_is_unlimited": usage.unlimited,
            ("failcnt" if key == "memory" else f"{key}_failcnt"): usage.failcnt,
        }
    for name in ("anon", "file", "kernel", "shmem", "slab", "sock"):
        given[f"{name}_bytes"] = report.stats.get(name)
    for name in ("rss", "cache", "dirty"):
        value = report.stats.get(name)
        given[f"memcg_{name}_kb" if name != "dirty" else "dirty_kb"] = None if value is None else value >> 10
    return {
        **given,
        "free_swap_kb": report.free_swap_kb,
        "total_swap_kb": report.total_swap_kb,
        "cause_hint": _hint(report),
    }


def _hint(report: OomReport) -> str | None:
    """Say what held the memory, where it was not the processes."""
    cache, rss = report.stats.get("cache"), report.stats.get("rss")
    if cache is not None and rss is not None and cache > 8 * max(rss, 1):
        return f"page cache: {human_bytes(cache)} against {human_bytes(rss)} anonymous memory"
    if report.gfp_mask is not None and report.gfp_mask.startswith("0x0(") and report.scope is None:
        return "a page fault whose charge failed: often a kernel memory (kmem) limit of a container"
    return None


def _table(report: OomReport, victim: Killed | None) -> dict[str, Field]:
    pid = victim.pid if victim else report.victim_pid
    row = next((one for one in report.tasks if one.pid == pid), None)
    largest = max(report.tasks, key=lambda one: one.rss_pages or 0, default=None)
    return {
        "table_rss_pages": None if row is None else row.rss_pages,
        "swapents_pages": None if row is None else row.swapents_pages,
        "largest_task": None if largest is None else _row_fields(largest),
        "table_columns": ["pid", *report.columns] if report.columns else None,
        "tasks": [_row_fields(one) for one in report.tasks[:16]] or None,
    }


def _row_fields(task: Task) -> dict[str, Field]:
    return {"pid": task.pid, "rss_pages": task.rss_pages, "comm": task.comm}


def _keys(report: OomReport) -> frozenset[str]:
    found = [words_of(path) for path in (report.task_memcg, report.oom_memcg, report.stats_memcg) if path]
    named = {f"container:{one.container_id}" for one in found if one.container_id}
    pods = {f"pod:{one.pod_uid}" for one in found if one.pod_uid}
    parts = (report.task_memcg or "").split("/")
    units = {f"unit:{part}" for part in parts if part.endswith((".service", ".scope"))}
    return frozenset(named | pods | units)


def _is_alike(report: OomReport, other: OomReport) -> bool:
    names = {other.invoker, other.victim_comm, *(one.comm for one in other.killed), *(one.comm for one in other.tasks)}
    adjusted = {other.invoker_oom_score_adj, *(task.oom_score_adj for task in other.tasks)}
    return (
        other.scope is not None
        and report.invoker in names - {None}
        and report.invoker_oom_score_adj in adjusted - {None}
    )


def _confidence(report: OomReport, first: Line | None, *, guessed: bool) -> Confidence:
    if guessed or report.scope is None:
        return Confidence.LOW
    kills = bool(report.killed or report.constraint or report.selected_pid is not None)
    sure = Confidence.HIGH if kills or report.oom_memcg is not None else Confidence.MEDIUM
    return _LOWER[sure] if first is not None and first.kernel is False else sure


def _summary(report: OomReport, end_class: EndClass) -> str:
    victim = _victim(report)
    held = (
        ""
        if victim is None or victim.anon_rss_kb is None
        else f" ({human_bytes(victim.anon_rss_kb << 10)} anonymous memory)"
    )
    name = (victim.comm if victim else report.victim_comm) or "a process"
    pid = victim.pid if victim else report.victim_pid
    who = (
        f"the kernel killed {name}{held}"
        if pid is not None
        else "the kernel's OOM killer ran; whom it killed is not in the text"
    )
    if pid is not None:
        who = who.replace(name, f"{name} (pid {pid})", 1)
    more = f" and {len(report.killed) - 1} more" if len(report.killed) > 1 else ""
    return f"{who}{more}: {_where(report, end_class)}"


def _where(report: OomReport, end_class: EndClass) -> str:
    if end_class is EndClass.GLOBAL_OOM:
        places = {
            "CONSTRAINT_CPUSET": f"the NUMA nodes {report.mems_allowed} of cpuset {report.cpuset} were full",
            "CONSTRAINT_MEMORY_POLICY": f"the NUMA nodes {report.nodemask} of a memory policy were full",
        }
        return places.get(report.constraint or "", "the node was out of memory")
    if end_class is EndClass.UNKNOWN:
        return "whether a limit or the node was full is not in the text"
    usage = report.usage.get("memory")
    size = (
        "" if usage is None or usage.unlimited or usage.limit_kb is None else f" ({human_bytes(usage.limit_kb << 10)})"
    )
    owner = report.oom_memcg or report.stats_memcg
    if owner is None:
        return f"out of memory at a cgroup's limit{size}"
    whose = "the limit of its ancestor " if report.task_memcg and report.task_memcg != owner else "the limit of "
    return f"out of memory at {whose}{owner}{size}"


def _missing(report: OomReport, end_class: EndClass) -> tuple[str, ...]:
    said = []
    if not report.pids:
        said.append('whom it killed: the lines "oom-kill:" and "Killed process" after the report')
    if end_class is EndClass.UNKNOWN:
        said.append("whose memory it was: the rest of the report, or memory.events of the container's cgroup")
    if end_class is EndClass.CGROUP_OOM and report.oom_memcg is None and report.stats_memcg is None:
        said.append(
            'which cgroup\'s limit it was: the line "oom-kill:" or "Task in .. killed as a result of limit of .."'
        )
    if report.suppressed:
        said.append(_HIDDEN)
    return tuple(said)
