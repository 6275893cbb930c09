"""The kernel's OOM reports: real logs of several kernels, old shapes, hostile lines."""

from __future__ import annotations

import re
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from guard.kernel.values import KmsgRecord
from sidecar.verdict.kernel_report.assemble import parse
from sidecar.verdict.kernel_report.values import OomReport, Scope

KMSG = Path(__file__).parent / "kmsg"
_LINE = re.compile(r"\[\s*(\d+)\.(\d{6})\] ?(.*)")


def record(text: str, *, number: int = 0, facility: int = 0, us: int = 1_000_000) -> KmsgRecord:
    """Make one record."""
    return KmsgRecord(level=6, facility=facility, sequence=number, timestamp_us=us, text=text)


def recorded(name: str) -> tuple[OomReport, ...]:
    """Parse a log as dmesg printed it."""
    found = [_LINE.match(line) for line in (KMSG / name).read_text(encoding="utf-8").splitlines()]
    return parse(
        record(match[3], number=number, us=int(match[1]) * 1_000_000 + int(match[2]))
        for number, match in enumerate(found)
        if match
    )


def parse_lines(*lines: str) -> tuple[OomReport, ...]:
    """Parse lines."""
    return parse(record(line, number=number) for number, line in enumerate(lines))


def test_a_group_kill_names_each_victim_once() -> None:
    """memory.oom.group logs the first victim twice; two processes died, not three."""
    (report,) = recorded("6.12-v2-group.txt")
    assert (report.global_oom, report.oom_memcg, report.task_memcg) == (False, "/oom1", "/oom1")
    assert [(one.pid, one.comm) for one in report.killed] == [(210, "python3"), (208, "sleep")]
    assert report.usage["memory"].limit_kb == 204800


def test_an_ancestors_limit_is_told_from_the_victims_group() -> None:
    """`oom_memcg` is whose limit it was, `task_memcg` where the victim lived."""
    (report,) = recorded("6.12-v2-nested.txt")
    assert (report.oom_memcg, report.task_memcg) == ("/par", "/par/kid")
    assert report.pids == {228}


def test_a_global_oom_has_no_owner() -> None:
    """The node itself was out of memory, although the victim's cgroup is named."""
    (report,) = recorded("6.12-global.txt")
    assert (report.global_oom, report.oom_memcg, report.task_memcg) == (True, None, "/lead")
    assert [one.anon_rss_bytes for one in report.killed if one.pid == 248] == [450304 << 10]


def test_two_kills_are_two_reports() -> None:
    """Reports that follow one another are kept apart, each with its time."""
    first, second = recorded("6.18-v1-two-kills.txt")
    assert [set(one.pids) for one in (first, second)] == [{12790}, {12794}]
    assert first.at_seconds is not None
    assert second.at_seconds is not None
    assert round(second.at_seconds - first.at_seconds) == 6


def test_the_shape_before_4_19() -> None:
    """Old kernels name both groups in one line, and the process killed may be another than the one chosen."""
    (report,) = parse_lines(
        "java invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=-998",
        "Task in /kubepods/podaa/bb killed as a result of limit of /kubepods/podaa",
        "memory: usage 524288kB, limit 524288kB, failcnt 38",
        "Memory cgroup out of memory: Kill process 24584 (java) score 0 or sacrifice child",
        "Killed process 28446 (java) total-vm:20255648kB, anon-rss:466172kB, file-rss:13696kB",
    )
    assert (report.oom_memcg, report.task_memcg, report.global_oom) == ("/kubepods/podaa", "/kubepods/podaa/bb", False)
    assert report.pids == {28446}


def test_the_vendor_shape_with_the_uid_first() -> None:
    """Some kernels print the uid between pid and name."""
    (report,) = parse_lines("Killed process 215709, UID 679, (java) total-vm:11017312kB, anon-rss:7152444kB")
    assert [(one.pid, one.comm, one.uid, one.anon_rss_kb) for one in report.killed] == [(215709, "java", 679, 7152444)]
    assert report.global_oom is None


def test_a_kernel_without_cgroups_is_global() -> None:
    """A line without any group is of a kernel that has none."""
    (report,) = parse_lines(
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=chromium,pid=27380,uid=1000",
        "Out of memory: Killed process 27380 (chromium) total-vm:6686920kB, anon-rss:647068kB",
    )
    assert report.global_oom is True
    assert report.pids == {27380}


def test_a_cut_log_still_tells_what_is_there() -> None:
    """Where the head was lost to rate limiting the kill line alone makes a report."""
    (report,) = parse_lines(
        "some driver says hello",
        "Memory cgroup out of memory: Killed process 7 (serve) total-vm:1kB, anon-rss:1kB, file-rss:0kB",
    )
    assert (report.global_oom, report.oom_memcg) == (False, None)
    assert report.pids == {7}


def test_a_name_with_brackets_is_read_whole() -> None:
    """A comm may hold parentheses, commas and spaces."""
    (report,) = parse_lines(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a,"
        "task=x,pid=1,uid=2,pid=99,uid=0",
        "Memory cgroup out of memory: Killed process 99 (a (b), c) total-vm:1kB, anon-rss:4kB, file-rss:0kB",
    )
    assert report.victim_pid == 99
    assert [(one.pid, one.comm) for one in report.killed] == [(99, "a (b), c")]


def test_what_a_program_writes_is_no_report() -> None:
    """Root may write to /dev/kmsg; such records carry another facility and do not count."""
    assert parse([record("Memory cgroup out of memory: Killed process 1 (x) total-vm:1kB", facility=1)]) == ()


def test_a_spared_process_is_not_killed() -> None:
    """The line "Kill process" only says who was chosen; nothing killed, nobody named."""
    (report,) = parse_lines(
        "x invoked oom-killer: gfp_mask=0xd0",
        "Memory cgroup out of memory: Kill process 5 (x) score 9 or sacrifice child",
    )
    assert report.pids == frozenset()


_PIECES = st.sampled_from(
    [
        *("oom-kill:constraint=", ",oom_memcg=", ",task_memcg=", ",task=", ",pid=1,uid=2", "global_oom", "/a"),
        *("Killed process ", "12", " (", ")", " total-vm:", "anon-rss:9kB", "invoked oom-killer: ", "Task in "),
        *(" killed as a result of limit of ", "memory: usage 1kB, limit 2kB", "\n", "Memory cgroup", "é"),
    ]
)


@given(st.lists(st.lists(st.one_of(_PIECES, st.text(max_size=8)), max_size=12).map("".join), max_size=12))
def test_no_text_breaks_the_parser(lines: list[str]) -> None:
    """Whatever the records hold, the parser gives reports and never raises."""
    for report in parse_lines(*lines):
        assert len(report.pids) == len({one.pid for one in report.killed}) or not report.killed


def test_hostile_lines_take_linear_time() -> None:
    """Very long lines made of near matches do not blow up."""
    hostile = ["Killed process 1 (" + "(" * 200_000, "oom-kill:" + ",task=" * 50_000, " invoked" * 50_000]
    began = time.process_time()
    parse_lines(*hostile)
    assert time.process_time() - began < 1.0


def test_interleaved_reports_keep_their_victims() -> None:
    """A cgroup's report whose kill line was rate limited does not take the victim of the node's report."""
    node, group = parse_lines(
        "Out of memory: Kill process 2188 (mysqld) score 60 or sacrifice child",
        "Killed process 2188 (mysqld) total-vm:3330028kB, anon-rss:864188kB, file-rss:8084kB",
        "Task in /1037/uid killed as a result of limit of /1037",
        "memory: usage 102400kB, limit 102400kB, failcnt 736",
    )
    assert (node.scope, set(node.pids)) == (Scope.GLOBAL, {2188})
    assert (group.scope, group.pids, group.oom_memcg) == (Scope.CGROUP, frozenset(), "/1037")


def test_a_kill_line_of_the_other_kind_begins_another_report() -> None:
    """The kill of the node after a cgroup's report without a victim is not that cgroup's."""
    group, node = parse_lines(
        "Task in /a killed as a result of limit of /a",
        "Out of memory: Killed process 7 (b) total-vm:1kB, anon-rss:1kB",
    )
    assert (group.scope, group.pids) == (Scope.CGROUP, frozenset())
    assert (node.scope, set(node.pids)) == (Scope.GLOBAL, {7})


def test_a_task_that_exits_already_is_skipped_not_killed() -> None:
    """Group victims that are gone when their turn comes are skipped, not killed."""
    (report,) = parse_lines(
        "Memory cgroup out of memory: Killed process 10 (a) total-vm:1kB, anon-rss:1kB, file-rss:0kB",
        "Tasks in /a are going to be killed due to memory.oom.group set",
        "Memory cgroup out of memory: OOM victim 11 (b) is already exiting. Skip killing the task",
    )
    assert (set(report.pids), report.skipped) == ({10}, [11])


def test_columns_are_taken_by_name() -> None:
    """The task table of six kernels: the same numbers wherever they stand, names with blanks included."""
    headers = {
        "[ pid ]   uid  tgid total_vm      rss cpu oom_adj oom_score_adj name": "[ 1046]  10  1046 22 95 3 0 0 a b",
        "[ pid ]   uid  tgid total_vm      rss nr_ptes swapents oom_score_adj name": (
            "[ 1046] 10 1046 22 95 16 7 -998 a b"
        ),
        "[ pid ]   uid  tgid total_vm      rss nr_ptes nr_pmds swapents oom_score_adj name": (
            "[ 1046] 10 1046 22 95 16 1 7 0 a b"
        ),
        "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name": (
            "[   1046] 10 1046 22 95 65536 7 0 a b"
        ),
        "[  pid  ]   uid  tgid total_vm      rss (01)nrss  pgtables_bytes swapents oom_score_adj name": (
            "[   1046] 10 1046 22 95 4 65536 7 0 a b"
        ),
        "[  pid  ]   uid  tgid total_vm rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name": (
            "[   1046] 10 1046 22 95 90 5 0 65536 7 0 a b"
        ),
    }
    for header, row in headers.items():
        (report,) = parse_lines("x invoked oom-killer: gfp_mask=0xd0", header, row)
        (task,) = report.tasks
        assert (task.pid, task.rss_pages, task.total_vm_pages, task.comm) == (1046, 95, 22, "a b")


def test_a_page_fault_without_a_mask_is_nobodys_report() -> None:
    """gfp_mask 0 with the node's memory printed is a charge that failed elsewhere: whose, it does not say."""
    (report,) = parse_lines("python3 invoked oom-killer: gfp_mask=0x0(), order=0, oom_score_adj=0", "Mem-Info:")
    assert report.scope is None
    (report,) = parse_lines("python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0", "Mem-Info:")
    assert report.scope is Scope.GLOBAL


def test_unlimited_is_told_from_a_limit() -> None:
    """Every way in which kernels print "no limit" in kB is one."""
    for number in (9007199254740988, 9007199254740991, 18014398509481983):
        (report,) = parse_lines(f"memory: usage 1kB, limit {number}kB, failcnt 0")
        assert report.usage["memory"].unlimited
    (report,) = parse_lines("memory: usage 1kB, limit 1048576kB, failcnt 0")
    assert not report.usage["memory"].unlimited


def test_a_cut_number_is_unknown() -> None:
    """A value without its unit was cut: it is not taken."""
    (report,) = parse_lines("Memory cgroup out of memory: Killed process 5 (dd) total-vm:21736kB, anon-rss:147")
    assert (report.killed[0].total_vm_kb, report.killed[0].anon_rss_kb) == (21736, None)
