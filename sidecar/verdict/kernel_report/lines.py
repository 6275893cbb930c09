r"""Single lines of an OOM report, each put into the report it belongs to. Every pattern is linear in the line.

Shapes (mm/oom_kill.c, mm/memcontrol.c)
    up to 2.6.35 "Out of memory: kill process N (c) score S or a child", "Killed process N (c) vsz:..kB, anon-rss:.."
    up to 4.18   "Task in A killed as a result of limit of B", "... Kill process N (c) score S or sacrifice child",
                 "Killed process N (c) total-vm:..kB, anon-rss:..kB, file-rss:..kB[, shmem-rss:..kB]"
    vendors      "Killed process N, UID U, (c) total-vm:.."
    from 4.19    "oom-kill:constraint=..,nodemask=..,cpuset=..,mems_allowed=..,(oom_memcg=B|global_oom),task_memcg=A,
                 task=c,pid=N,uid=U"; without cgroups or cpusets those parts are left out
    from 5.1     "Memory cgroup out of memory: Killed process N (c) total-vm:.." or "Out of memory: Killed process .."
    group        "Tasks in B are going to be killed due to memory.oom.group set", then one "Killed process" each, the
                 first victim twice
    v1 stats     "Memory cgroup stats for P: cache:1KB rss:2KB .."; v2 stats: one counter a line, in bytes
"""

from __future__ import annotations

import re
from typing import Final

from sidecar.verdict.kernel_report.values import Killed, OomReport, Scope, Task, Usage

MAX_TASKS: Final = 512
_MAX_COLUMNS: Final = 16

INVOKED: Final = re.compile(r"^(.{0,64}?) invoked oom-killer(?::\s*(.*))?$")
OOM_KILL: Final = "oom-kill:constraint="
TASK_IN: Final = re.compile(r"^Task in (\S+) killed as a result of limit of (\S+)")
USAGE: Final = re.compile(
    r"^(memory|memory\+swap|swap|kmem): usage (\d{1,20})kB, limit (\d{1,20})kB(?:, failcnt (\d{1,20}))?"
)
STATS: Final = re.compile(r"^Memory cgroup stats(?: for (\S{1,4096}?))?:(?:\s|$)")
SELECTED: Final = re.compile(
    r"\b[Kk]ill process (\d{1,10}) \((.{0,64}?)\)(?: score (\d{1,20}))?(?:,? or (?:sacrifice|a) child|$)"
)
KILLED: Final = re.compile(
    r"\bKilled process (\d{1,10})(?:, UID (\d{1,10}),)? \((?:(.{0,64}?)\)(?:,? (?:UID|total-vm|vsz)|\s*$))?"
)
SKIPPED: Final = re.compile(r"\bOOM victim (\d{1,10}) \(.{0,64}?\) is already exiting\. Skip killing")
GROUP: Final = re.compile(r"^Tasks in (\S+) are going to be killed due to memory\.oom\.group set")
REAPED: Final = re.compile(r"^oom_reaper: reaped process (\d{1,10}) \(.{0,64}?\)(?:.*?shmem-rss:(\d{1,20})kB)?")
SUPPRESSED: Final = re.compile(r"^(?:oom_kill_process|dump_header|oom_dump_\w+): (\d{1,10}) callbacks suppressed")
_CPU: Final = re.compile(r"^CPU: \d+ (?:UID: \d+ )?PID: (\d{1,10}) Comm: .*?\s(\d+\.\d+\.\d+\S*) #")
_CPUSET: Final = re.compile(r"^.{0,64}? cpuset=(\S+) mems_allowed=([\d,-]+)$")
_SWAP: Final = re.compile(r"^(Free|Total) swap\s*= (\d{1,20})kB")
_SLAB: Final = re.compile(r"^\s*cache: \S+?\(\d+:([^)\s]{1,256})\)")
_HEADER: Final = re.compile(r"^\[?\s*pid\s*\]\s+(uid\s.*\bname)\s*$")
_ROW: Final = re.compile(r"^(?:\[\s*(\d{1,10})\]\s+)?(\d.{0,400})$")
_CELL: Final = re.compile(r"-?\d{1,18}")
_V1_STAT: Final = re.compile(r"\b([a-z_]+):(\d{1,16})KB")
_V2_STAT: Final = re.compile(r"^([a-z_]{2,32}) (\d{1,20})$")
_NUMBER: Final = {
    name: re.compile(text)
    for name, text in (
        ("total_vm_kb", r"\b(?:total-vm|vsz):(\d{1,16})kB"),
        ("anon_rss_kb", r"\banon-rss:(\d{1,16})kB"),
        ("file_rss_kb", r"\bfile-rss:(\d{1,16})kB"),
        ("shmem_rss_kb", r"\bshmem-rss:(\d{1,16})kB"),
        ("uid", r"\bUID[: ](\d{1,10})\b"),
        ("pgtables_kb", r"\bpgtables:(\d{1,16})kB"),
        ("oom_score_adj", r"\boom_score_adj:(-?\d{1,4})\b"),
    )
}
_MEMCG_FRAMES: Final = ("mem_cgroup_out_of_memory", "mem_cgroup_oom_synchronize", "try_charge", "mem_cgroup_oom+")
_BLIND: Final = re.compile(r"(?:mem_cgroup_out_of_memory|mem_cgroup_oom_synchronize|try_charge(?:_memcg)?)\+0x")


def put_invoked(report: OomReport, found: re.Match[str]) -> None:
    """Put the first line of a report: who asked for memory. The asker need not be the victim."""
    report.invoker = found[1].strip() or None
    rest = found[2] or ""
    for name, value in re.findall(r"([a-z_]{1,20})=([^\s,]{1,256})", rest):
        if name == "gfp_mask":
            report.gfp_mask = value
        elif name == "order":
            report.order = int(value) if value.lstrip("-").isdigit() else None
        elif name == "nodemask":
            report.nodemask = value
        elif name == "oom_score_adj":
            report.invoker_oom_score_adj = int(value) if re.fullmatch(r"-?\d{1,4}", value) else None


def put_oom_kill(report: OomReport, text: str) -> None:
    """Put the summary line. Paths and names may hold commas, so it is cut at the known keys, from the right."""
    head, _, task = text.partition(",task=")
    comm, _, tail = task.rpartition(",pid=")
    report.victim_comm = (comm or task).strip() or None if task else None
    numbers = re.match(r"(\d{1,10})(?:,uid=(-?\d{1,10}))?", tail)
    if numbers:
        report.victim_pid = int(numbers[1])
        report.victim_uid = None if numbers[2] is None else int(numbers[2])
    head, _, task_memcg = head.partition(",task_memcg=")
    head, _, oom_memcg = head.partition(",oom_memcg=")
    report.task_memcg = task_memcg or report.task_memcg
    report.oom_memcg = oom_memcg or report.oom_memcg
    report.global_flag = head.endswith(",global_oom")
    head, _, mems = head.removesuffix(",global_oom").partition(",mems_allowed=")
    head, _, cpuset = head.partition(",cpuset=")
    head, _, nodemask = head.partition(",nodemask=")
    report.constraint = head.removeprefix(OOM_KILL) or None
    report.nodemask = nodemask or report.nodemask
    report.cpuset = cpuset or report.cpuset
    report.mems_allowed = mems or report.mems_allowed


def put_selected(report: OomReport, found: re.Match[str]) -> None:
    """Put whom the killer selected (up to 5.0); a child may be sacrificed in its place."""
    report.selected_pid, report.selected_comm = int(found[1]), found[2]
    report.score = None if found[3] is None else int(found[3])


def put_killed(report: OomReport, text: str, found: re.Match[str]) -> None:
    """Put one kill. A number that was cut has no unit and stays unknown."""
    pid = int(found[1])
    if any(one.pid == pid for one in report.killed):
        return
    numbers = {name: int(hit[1]) for name, pattern in _NUMBER.items() if (hit := pattern.search(text)) is not None}
    if found[2] is not None:
        numbers["uid"] = int(found[2])
    report.killed.append(Killed(pid=pid, comm=found[3] or None, **numbers))


def put_usage(report: OomReport, found: re.Match[str]) -> None:
    """Put what the group held against its limit."""
    failcnt = None if found[4] is None else int(found[4])
    report.usage.setdefault(found[1], Usage(usage_kb=int(found[2]), limit_kb=int(found[3]), failcnt=failcnt))


def put_stats(report: OomReport, text: str, found: re.Match[str]) -> None:
    """Put the group's statistics; the first group printed is the one whose limit it was."""
    if report.stats_memcg is None:
        report.stats_memcg = found[1]
        for name, value in _V1_STAT.findall(text, found.end()):
            report.stats.setdefault(name, int(value) << 10)


def put_context(report: OomReport, text: str) -> bool:
    """Put a line that means something only inside a report; tell whether it did."""
    if (found := _HEADER.match(text)) is not None:
        report.columns = tuple(re.sub(r"\(\d+\)", "", found[1]).split()[:_MAX_COLUMNS])
        return True
    if report.columns and (found := _ROW.match(text)) is not None and _put_row(report, found):
        return True
    if report.stats_memcg is not None and (found := _V2_STAT.match(text)) is not None:
        report.stats.setdefault(found[1], int(found[2]))
        return True
    if (found := _CPU.match(text)) is not None:
        report.invoker_pid, report.kernel = int(found[1]), found[2]
        return True
    if _BLIND.search(text) is not None:
        report.memcg_frames = True
        return True
    return _put_rest(report, text)


def _put_rest(report: OomReport, text: str) -> bool:
    if text.startswith("Mem-Info:"):
        report.mem_info = True
    elif (found := _SWAP.match(text)) is not None:
        setattr(report, f"{found[1].lower()}_swap_kb", int(found[2]))
    elif (found := _CPUSET.match(text)) is not None:
        report.cpuset, report.mems_allowed = found[1], found[2]
    elif (found := _SLAB.match(text)) is not None:
        report.slab_memcg = found[1]
    else:
        return False
    return True


def _put_row(report: OomReport, found: re.Match[str]) -> bool:
    """Put a row by the names of the header's columns. Where the pid in brackets was torn off, the tgid stands in."""
    names = report.columns[:-1]
    *cells, comm = found[2].split(None, len(names))
    if len(cells) != len(names) or not all(_CELL.fullmatch(cell) for cell in cells):
        return False
    row = dict(zip(names, map(int, cells), strict=True))
    pid = row.get("tgid") if found[1] is None else int(found[1])
    if found[1] is None:
        report.shared_clock = False
    if pid is not None and len(report.tasks) < MAX_TASKS:
        report.tasks.append(
            Task(
                pid=pid,
                comm=comm.strip(),
                total_vm_pages=row.get("total_vm"),
                rss_pages=row.get("rss"),
                swapents_pages=row.get("swapents"),
                oom_score_adj=row.get("oom_score_adj"),
            )
        )
    return True


def scope_of_prefix(text: str) -> Scope | None:
    """Tell by the words before "Kill process" or "Killed process" whose memory it was."""
    at = text.find("ut of memory")
    if at < 0:
        return None
    return Scope.CGROUP if text[:at].rstrip("oO").rstrip().endswith("Memory cgroup") else Scope.GLOBAL
