"""Verdicts: every class from the evidence that a sidecar has, and what contradictions do to them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.kernel.values import KmsgRecord
from guard.model import BoxState, ExitMark, Failure, Known, Operation, Reading, Unknown, Why
from sidecar.verdict.classify import classify
from sidecar.verdict.ends import external_kill
from sidecar.verdict.facts import digest
from sidecar.verdict.values import (
    Confidence,
    EndClass,
    EndEvidence,
    LevelsBefore,
    Verdict,
    WaitStatus,
)
from tests.sidecar import making as make
from tests.sidecar.making import MIB

END: Final = 1000.0
NO_BOX: Final = Unknown(Why.MISSING, "black box")
NO_KMSG: Final = Unknown(Why.DENIED, "/dev/kmsg")
NO_STATUS: Final = Unknown(Why.NOT_SAMPLED, "wait status")
LIMIT: Final = str(256 * MIB)
FULL: Final = make.V2(anon=250 * MIB, limit=LIMIT)
RANK: Final = [Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH]


def ended(code: int | None = None, by: int | None = None) -> Known[WaitStatus]:
    """Make a wait status."""
    return Known(WaitStatus(code, by))


KILLED: Final = ended(by=signal.SIGKILL)


def pair(before: make.V2 | make.V1, after: make.V2 | make.V1, depth: int = 0, name: str | None = None) -> LevelsBefore:
    """Make one level before and after."""
    return LevelsBefore(
        before=make.level(before, depth=depth, name=name), after=make.level(after, depth=depth, name=name)
    )


QUIET: Final = (pair(FULL, FULL),)
OWN_OOM: Final = (
    pair(FULL, replace(FULL, events={"oom": 1, "oom_kill": 1, "max": 90}, local={"oom": 1, "oom_kill": 1})),
)
POD_OOM: Final = (
    pair(FULL, replace(FULL, events={"oom_kill": 1}, local={"oom_kill": 1})),
    pair(FULL, replace(FULL, events={"oom": 1, "oom_kill": 1}, local={"oom": 1}), depth=1),
    pair(make.V2(), make.V2(), depth=2),
)


def box(
    *,
    operations: tuple[Operation, ...] = (),
    failures: tuple[Failure, ...] = (),
    sigterm_ago: float | None = None,
    mark: ExitMark | None = None,
) -> Known[BoxState]:
    """Make a black box."""
    return Known(
        BoxState(
            life=make.LIFE,
            parent_session=None,
            release="1",
            created_wall_s=0.0,
            command="serve",
            operations=operations,
            failures=failures,
            sigterm_wall_s=None if sigterm_ago is None else make.at(END).wall_s - sigterm_ago,
            exit_mark=mark,
        )
    )


def failure(kind: str, *, fatal: bool = True, ago: float = 0.5, message: str = "no room") -> Failure:
    """Make a failure."""
    return Failure(
        at_wall_s=make.at(END - ago).wall_s,
        at_monotonic_s=END - ago,
        kind=kind,
        exception="torch.OutOfMemoryError",
        message=message,
        fatal=fatal,
    )


BASE: Final = EndEvidence(
    life=make.LIFE,
    began_monotonic_s=END - 60,
    node_pid=make.LIFE.pid,
    main=True,
    ended=make.at(END),
    wait_status=NO_STATUS,
    levels=QUIET,
    hidden_ancestors=False,
    node_oom_kill_delta=Known(0),
    node_available_ratio=Known(0.6),
    kmsg=NO_KMSG,
    box=NO_BOX,
    liveness_failures_answered=0,
    others_alive=0,
)


def verdict(**so: object) -> Verdict:
    """Classify an end that is so."""
    return classify(replace(BASE, **so))  # type: ignore[arg-type]


def kmsg(*lines: str, ago: float = 0.1) -> Known[tuple[KmsgRecord, ...]]:
    """Make kernel log records."""
    us = int((END - ago) * 1e6)
    return Known(tuple(KmsgRecord(6, 0, number, us + number, line) for number, line in enumerate(lines)))


def report(owner: str, victim: str, pid: int = make.LIFE.pid) -> Known[tuple[KmsgRecord, ...]]:
    """Make the kernel's report of a kill at the limit of `owner` ("" for the node)."""
    whose = f"oom_memcg={owner}" if owner else "global_oom"
    head = "Memory cgroup out of memory" if owner else "Out of memory"
    return kmsg(
        "serve invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"oom-kill:constraint=X,nodemask=(null),cpuset=/,mems_allowed=0,{whose},task_memcg={victim},"
        f"task=serve,pid={pid},uid=0",
        f"{head}: Killed process {pid} (serve) total-vm:9kB, anon-rss:256000kB, file-rss:0kB, shmem-rss:0kB",
    )


def test_own_limit() -> None:
    """A kill at the model's own limit is named with counters, limit and what was held, for sure."""
    found = verdict(wait_status=KILLED, levels=OWN_OOM, node_oom_kill_delta=Known(1))
    assert (found.end_class, found.confidence, found.level) == (EndClass.CGROUP_OOM, Confidence.HIGH, "/pod/model")
    said = [one.text for one in found.statements]
    assert "oom_kill rose from 0 to 1 in memory.events of /pod/model" in said
    assert "oom rose from 0 to 1 in memory.events.local of /pod/model" in said
    assert any("268435456 bytes" in text and "250.0 MiB" in text for text in said)
    assert any("raise the memory limit" in step for step in found.next_steps)


def test_the_limit_of_an_ancestor() -> None:
    """The own cgroup counts the kill, the pod's counts the limit: the pod is named."""
    found = verdict(wait_status=KILLED, levels=POD_OOM, node_oom_kill_delta=Known(1))
    assert (found.end_class, found.confidence, found.level) == (EndClass.CGROUP_OOM, Confidence.HIGH, "/pod")
    assert "ancestor" in found.summary


def test_the_limit_of_an_ancestor_without_local_events() -> None:
    """Before 5.2 there is no memory.events.local; the lowest level whose oom rose owns the limit."""
    bare = tuple(
        LevelsBefore(
            before=replace(one.before, memory=replace(one.before.memory, events_local=NO_STATUS)),
            after=replace(one.after, memory=replace(one.after.memory, events_local=NO_STATUS)),
        )
        for one in POD_OOM
    )
    assert verdict(wait_status=KILLED, levels=bare, node_oom_kill_delta=Known(1)).level == "/pod"


def test_the_load_in_flight_is_named() -> None:
    """The verdict says file, tensor and bytes of what was being loaded, in words and as fields."""
    operation = make.load("torch.load", 500 * MIB, done=300 * MIB)
    found = verdict(wait_status=KILLED, levels=OWN_OOM, node_oom_kill_delta=Known(1), box=box(operations=(operation,)))
    assert "while loading model.safetensors, tensor layer.0, 300.0 MiB of 500.0 MiB (60.0 %)" in found.summary
    assert found.fields["in_flight_file"] == "model.safetensors"
    assert found.fields["in_flight_tensor"] == "layer.0"
    assert found.fields["in_flight_bytes_done"] == 300 * MIB
    assert found.fields["in_flight_bytes_expected"] == 500 * MIB


def test_a_finished_load_is_not_in_flight() -> None:
    """What was done before the end is not named as in flight."""
    operation = replace(make.load("torch.load", MIB), done=True)
    found = verdict(wait_status=KILLED, levels=OWN_OOM, node_oom_kill_delta=Known(1), box=box(operations=(operation,)))
    assert found.fields["in_flight_file"] is None


def test_no_exit_status_is_needed() -> None:
    """Across PID namespaces the exit status is hidden; counters that moved at the death decide all the same."""
    found = verdict(levels=OWN_OOM, node_oom_kill_delta=Known(1))
    assert (found.end_class, found.confidence) == (EndClass.CGROUP_OOM, Confidence.HIGH)
    assert any("wait status" in gap for gap in found.missing)


V1: Final = make.V1(rss=200 * MIB, limit=256 * MIB)


def test_v1_own_limit() -> None:
    """On v1 failcnt tells whose limit it was, oom_control counts the kill."""
    levels = (
        pair(V1, replace(V1, failcnt=90, oom_kill=1)),
        pair(make.V1(rss=200 * MIB, limit=1 << 30), make.V1(rss=200 * MIB, limit=1 << 30), depth=1),
    )
    found = verdict(wait_status=KILLED, levels=levels, node_oom_kill_delta=Known(1))
    assert (found.end_class, found.confidence, found.level) == (EndClass.CGROUP_OOM, Confidence.HIGH, "/pod/model")
    assert "oom_kill rose from 0 to 1 in memory.oom_control of /pod/model" in [one.text for one in found.statements]


def test_v1_ancestor() -> None:
    """The level whose failcnt rose owns the limit."""
    above = make.V1(rss=250 * MIB, limit=256 * MIB)
    levels = (
        pair(make.V1(rss=100 * MIB), make.V1(rss=100 * MIB, oom_kill=1)),
        pair(above, replace(above, failcnt=7), depth=1),
    )
    assert verdict(wait_status=KILLED, levels=levels, node_oom_kill_delta=Known(1)).level == "/pod"


def test_v1_with_reclaim_at_two_levels_is_less_sure() -> None:
    """Where two limits refused pages the nearer one is named, with less confidence."""
    near, far = make.V1(rss=250 * MIB, limit=256 * MIB), make.V1(rss=260 * MIB, limit=1 << 30)
    levels = (
        pair(near, replace(near, failcnt=5, oom_kill=1)),
        pair(far, replace(far, failcnt=5), depth=1),
    )
    found = verdict(wait_status=KILLED, levels=levels, node_oom_kill_delta=Known(1))
    assert (found.level, found.confidence) == ("/pod/model", Confidence.MEDIUM)


def test_the_kernel_log_decides_between_levels() -> None:
    """On v1 with two candidates the log's oom_memcg names the owner, by its distance above the victim."""
    near, far = make.V1(rss=250 * MIB, limit=256 * MIB), make.V1(rss=260 * MIB, limit=1 << 30)
    levels = (
        pair(near, replace(near, failcnt=5, oom_kill=1)),
        pair(far, replace(far, failcnt=5), depth=1),
    )
    found = verdict(
        wait_status=KILLED, levels=levels, node_oom_kill_delta=Known(1), kmsg=report("/node/pod", "/node/pod/model")
    )
    assert (found.level, found.confidence) == ("/pod", Confidence.HIGH)


def test_a_hidden_ancestor_is_named_by_the_log() -> None:
    """A limit above all visible levels is named as the log has it."""
    levels = (pair(FULL, replace(FULL, events={"oom_kill": 1}), name="/"),)
    found = verdict(
        wait_status=KILLED,
        levels=levels,
        hidden_ancestors=True,
        node_oom_kill_delta=Known(1),
        kmsg=report("/kubepods", "/kubepods/pod1/ctr"),
    )
    assert (found.end_class, found.level) == (EndClass.CGROUP_OOM, "/kubepods")


def test_a_hidden_ancestor_without_the_log() -> None:
    """Own kill counted, no visible limit hit, a roomy node: an ancestor that nobody here sees, less surely."""
    levels = (pair(FULL, replace(FULL, events={"oom_kill": 1})),)
    found = verdict(wait_status=KILLED, levels=levels, hidden_ancestors=True, node_oom_kill_delta=Known(1))
    assert (found.end_class, found.confidence, found.level) == (EndClass.CGROUP_OOM, Confidence.MEDIUM, None)
    assert any("hidden" in gap for gap in found.missing)


def test_without_a_limit_no_limit_is_quoted() -> None:
    """A kill below a hidden limit: the own level has none, so no number is made up for it."""
    levels = (pair(make.V2(anon=MIB), make.V2(anon=MIB, events={"oom_kill": 1})),)
    found = verdict(wait_status=KILLED, levels=levels, hidden_ancestors=True, node_oom_kill_delta=Known(1))
    assert found.fields["limit_bytes"] is None
    assert not [one for one in found.statements if "limit of" in one.text]


def test_the_node_was_out_of_memory() -> None:
    """The log says global: the node is blamed although the own cgroup counted the kill."""
    levels = (pair(FULL, replace(FULL, events={"oom_kill": 1})),)
    found = verdict(wait_status=KILLED, levels=levels, node_oom_kill_delta=Known(1), kmsg=report("", "/pod/model"))
    assert (found.end_class, found.confidence, found.level) == (EndClass.GLOBAL_OOM, Confidence.HIGH, None)


@pytest.mark.parametrize(("available", "confidence"), [(0.01, Confidence.MEDIUM), (0.5, Confidence.LOW)])
def test_the_node_without_the_log(available: float, confidence: Confidence) -> None:
    """With every level in sight and none at its limit it was the node; a full one makes it more likely."""
    levels = (pair(FULL, replace(FULL, events={"oom_kill": 1})),)
    found = verdict(
        wait_status=KILLED, levels=levels, node_oom_kill_delta=Known(1), node_available_ratio=Known(available)
    )
    assert (found.end_class, found.confidence) == (EndClass.GLOBAL_OOM, confidence)


def test_a_group_kill_is_not_three_processes() -> None:
    """oom_kill counts the first victim of a group kill twice; the statement says so."""
    after = replace(FULL, events={"oom": 1, "oom_kill": 3, "oom_group_kill": 1}, local={"oom": 1})
    found = verdict(wait_status=KILLED, levels=(pair(FULL, after),), node_oom_kill_delta=Known(3))
    assert any("counts its first victim twice" in one.text for one in found.statements)


@pytest.mark.parametrize("code", [1, 3])
def test_an_exit_after_the_kill_of_a_worker(code: int) -> None:
    """A server that ends with a code of its own was not killed: its exit, and the kill of its worker is said."""
    found = verdict(wait_status=ended(code), levels=OWN_OOM, node_oom_kill_delta=Known(1))
    assert (found.end_class, found.confidence) == (EndClass.APPLICATION_EXIT, Confidence.MEDIUM)
    assert "killed another process in its cgroup" in found.summary
    assert any("memory limit" in step for step in found.next_steps)


def test_a_shell_that_passes_on_the_kill_of_its_child() -> None:
    """Exit code 137 with a kill counted in this life is what a shell reports of its child: less direct, but memory."""
    found = verdict(wait_status=ended(137), levels=OWN_OOM, node_oom_kill_delta=Known(1))
    assert (found.end_class, found.confidence) == (EndClass.CGROUP_OOM, Confidence.MEDIUM)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_after_the_kill_of_a_worker(by: signal.Signals) -> None:
    """Who is told to stop was not the OOM killer's victim."""
    found = verdict(wait_status=ended(by=by), levels=OWN_OOM, node_oom_kill_delta=Known(1))
    assert found.end_class is EndClass.EXTERNAL_KILL
    assert not any("counted no OOM kill" in one.text for one in found.statements)


def test_an_orderly_exit_beside_a_kill_is_no_kill() -> None:
    """The interpreter's orderly exit says that it was not the victim, where the status cannot be seen."""
    mark = box(mark=ExitMark(make.at(END).wall_s, END, None))
    assert verdict(levels=OWN_OOM, node_oom_kill_delta=Known(1), box=mark).end_class is EndClass.APPLICATION_EXIT


@pytest.mark.parametrize("owner", ["/pod/model", ""])
@pytest.mark.parametrize("status", [KILLED, NO_STATUS, ended(3), ended(1)])
def test_a_kill_in_the_life_before_is_no_evidence(status: Reading[WaitStatus], owner: str) -> None:
    """A report from before this process began is not its own, although group and even pid are the same."""
    found = verdict(wait_status=status, kmsg=report(owner, "/pod/model"), began_monotonic_s=END - 0.05)
    assert found.end_class not in (EndClass.CGROUP_OOM, EndClass.GLOBAL_OOM)
    assert found.fields["victim_pids"] is None


@pytest.mark.parametrize("owner", ["/pod/model", ""])
@pytest.mark.parametrize("status", [KILLED, NO_STATUS, ended(3), ended(137)])
def test_a_foreign_victim_is_no_evidence(status: Reading[WaitStatus], owner: str) -> None:
    """A kill of another process, even in the same group, does not explain an end while the counter stood still."""
    found = verdict(wait_status=status, kmsg=report(owner, "/pod/model", pid=4711))
    assert found.end_class not in (EndClass.CGROUP_OOM, EndClass.GLOBAL_OOM)


def test_a_kill_from_outside_after_that_of_a_worker() -> None:
    """Where the log names the worker as the victim of the only kill, SIGKILL for the server came from outside."""
    so = {"wait_status": KILLED, "levels": OWN_OOM, "node_oom_kill_delta": Known(1)}
    log = report("/pod/model", "/pod/model", pid=4711)
    found = verdict(**so, kmsg=log)
    assert (found.end_class, found.confidence) == (EndClass.EXTERNAL_KILL, Confidence.MEDIUM)
    assert any("names others" in one.text for one in found.statements)
    assert verdict(**so, kmsg=log, node_pid=None).end_class is EndClass.CGROUP_OOM


@pytest.mark.parametrize(("levels", "level"), [(OWN_OOM, "/pod/model"), (QUIET, None)])
def test_across_pid_namespaces_the_group_and_its_counter_decide(
    levels: tuple[LevelsBefore, ...], level: str | None
) -> None:
    """Where pids cannot be compared a report counts if it is about the group and the group counted a kill."""
    found = verdict(wait_status=KILLED, levels=levels, node_pid=None, kmsg=report("/pod/model", "/pod/model", pid=4711))
    assert found.level == level
    assert found.fields["victim_pids"] == (None if level is None else "4711")


def test_a_pid_that_cannot_be_compared_is_not_compared() -> None:
    """A foreign victim with the number that the model has in its own namespace is not the model."""
    found = verdict(wait_status=KILLED, node_pid=None, kmsg=report("", "/other", pid=make.LIFE.pid))
    assert found.end_class is EndClass.EXTERNAL_KILL


def test_a_clean_exit_beside_a_kill_is_an_exit() -> None:
    """Exit code 0 is the server's own; the kill of another process is said against it."""
    found = verdict(wait_status=ended(0), levels=OWN_OOM, node_oom_kill_delta=Known(1))
    assert (found.end_class, found.confidence) == (EndClass.APPLICATION_EXIT, Confidence.MEDIUM)
    assert any(not one.supports for one in found.statements)


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP]
)
def test_a_crash(number: signal.Signals) -> None:
    """Signals for what the process itself did are crashes, named."""
    found = verdict(wait_status=ended(by=number))
    assert (found.end_class, found.confidence) == (EndClass.CRASH_SIGNAL, Confidence.HIGH)
    assert number.name in found.summary
    assert found.fields["signal"] == number.name


@pytest.mark.parametrize("code", [0, 1, 3, 137])
def test_an_exit_code(code: int) -> None:
    """An exit code is the application's own end, 137 included when it is no signal."""
    found = verdict(wait_status=ended(code))
    assert (found.end_class, found.confidence) == (EndClass.APPLICATION_EXIT, Confidence.HIGH)
    assert f"exit code {code}" in found.summary
    assert found.fields["exit_code"] == code


def test_an_orderly_exit_without_a_status() -> None:
    """The black box saw the orderly exit; that is enough for the class, less surely."""
    found = verdict(box=box(mark=ExitMark(make.at(END).wall_s, END, None)))
    assert (found.end_class, found.confidence) == (EndClass.APPLICATION_EXIT, Confidence.MEDIUM)


def test_an_uncaught_exception_is_named() -> None:
    """An exit after an uncaught exception says which."""
    found = verdict(wait_status=ended(1), box=box(failures=(replace(failure("exception"), exception="ValueError"),)))
    assert found.end_class is EndClass.APPLICATION_EXIT
    assert "ValueError: no room" in found.summary


@pytest.mark.parametrize(("node", "confidence"), [(Known(0), Confidence.HIGH), (NO_STATUS, Confidence.MEDIUM)])
def test_a_sigkill_from_outside(node: Reading[int], confidence: Confidence) -> None:
    """SIGKILL while every OOM counter stood still came from outside."""
    found = verdict(wait_status=KILLED, node_oom_kill_delta=node)
    assert (found.end_class, found.confidence) == (EndClass.EXTERNAL_KILL, confidence)


def test_a_sigkill_alone_is_unknown() -> None:
    """Without any counter a SIGKILL says nothing about who sent it."""
    found = verdict(wait_status=KILLED, levels=(), node_oom_kill_delta=NO_STATUS)
    assert (found.end_class, found.confidence) == (EndClass.UNKNOWN, Confidence.LOW)
    assert found.missing


@pytest.mark.parametrize("status", [ended(0), ended(143), NO_STATUS, ended(by=signal.SIGTERM)])
def test_a_sigterm_that_was_obeyed(status: Reading[WaitStatus]) -> None:
    """A server that was told to stop and did was ended from outside, whatever its exit code."""
    assert verdict(wait_status=status, box=box(sigterm_ago=2.0)).end_class is EndClass.EXTERNAL_KILL


def test_nothing_known() -> None:
    """No status, quiet counters, no guard: unknown, with what would decide."""
    found = verdict()
    assert (found.end_class, found.confidence) == (EndClass.UNKNOWN, Confidence.LOW)
    assert any("wait status" in gap for gap in found.missing)
    assert any("black box" in gap for gap in found.missing)
    assert found.next_steps


@pytest.mark.parametrize(
    ("status", "ago", "confidence"),
    [
        (ended(by=signal.SIGTERM), None, Confidence.HIGH),
        (ended(143), None, Confidence.HIGH),
        (ended(0), 3.0, Confidence.HIGH),
        (ended(0), None, Confidence.LOW),
        (KILLED, None, Confidence.MEDIUM),
        (NO_STATUS, None, Confidence.MEDIUM),
    ],
)
def test_a_failed_health_check(status: Reading[WaitStatus], ago: float | None, confidence: Confidence) -> None:
    """As many failures answered as a supervisor allows, then the stop: the probe had it killed."""
    times = (make.at(END - 35), make.at(END - 5))
    found = verdict(wait_status=status, liveness_failures_answered=4, liveness_failing=times, box=box(sigterm_ago=ago))
    assert (found.end_class, found.confidence) == (EndClass.HEALTH_CHECK, confidence)
    assert any("35" in one.text and one.source == "answers of the sidecar" for one in found.statements)


def test_failures_that_nobody_asked_for_are_a_guess() -> None:
    """Where nobody asked /livez a stop may still be a probe's of the server itself: said so, and less sure."""
    found = verdict(wait_status=ended(by=signal.SIGTERM), liveness_failures_answered=4)
    assert (found.end_class, found.confidence) == (EndClass.HEALTH_CHECK, Confidence.MEDIUM)
    assert "nobody asked" in found.statements[0].text
    unseen = verdict(wait_status=KILLED, liveness_failures_answered=4)
    assert (unseen.end_class, unseen.confidence) == (EndClass.HEALTH_CHECK, Confidence.LOW)


def test_a_stranger_that_only_the_counters_knew() -> None:
    """A kill of a process that nobody handed over is sure; who it was is missing, unless the kernel log says."""
    so = {"main": False, "seen": False, "levels": OWN_OOM, "node_oom_kill_delta": Known(1), "others_alive": 2}
    found = verdict(**so)
    assert (found.end_class, found.confidence) == (EndClass.CGROUP_OOM, Confidence.HIGH)
    assert found.level == OWN_OOM[0].after.name
    assert "not handed over" in found.summary
    assert "lives on (2 processes)" in found.summary
    assert any("which process" in text for text in found.missing)
    name = OWN_OOM[0].after.name
    logged = verdict(**so, kmsg=report(name, name, pid=777))
    assert not any("which process" in text for text in logged.missing)
    assert logged.fields["victim_pids"] == "777"


def test_too_few_failures_are_no_health_check() -> None:
    """Two failures of three have nobody killed."""
    found = verdict(wait_status=ended(by=signal.SIGTERM), liveness_failures_answered=2)
    assert found.end_class is EndClass.EXTERNAL_KILL


def test_a_crash_during_failing_probes_is_a_crash() -> None:
    """A segfault while probes failed is no kill by the supervisor."""
    found = verdict(wait_status=ended(by=signal.SIGSEGV), liveness_failures_answered=9)
    assert found.end_class is EndClass.CRASH_SIGNAL


def test_memory_comes_before_the_probe() -> None:
    """A kernel kill while probes failed is the kernel's."""
    found = verdict(wait_status=KILLED, levels=OWN_OOM, node_oom_kill_delta=Known(1), liveness_failures_answered=9)
    assert found.end_class is EndClass.CGROUP_OOM


@pytest.mark.parametrize(
    ("kind", "end_class"),
    [
        ("cuda_out_of_memory", EndClass.GPU_ALLOCATION_FAILURE),
        ("memory_error", EndClass.HOST_ALLOCATION_FAILURE),
        ("cpu_allocator", EndClass.HOST_ALLOCATION_FAILURE),
        ("pinned_memory", EndClass.HOST_ALLOCATION_FAILURE),
        ("device_out_of_memory", EndClass.GPU_ALLOCATION_FAILURE),
        ("shared_memory", EndClass.SHM_EXHAUSTED),
    ],
)
def test_a_fatal_allocation_failure(kind: str, end_class: EndClass) -> None:
    """An allocation that failed for good just before the exit is the cause, with its message."""
    found = verdict(wait_status=ended(1), box=box(failures=(failure(kind, message="tried 2.00 GiB"),)))
    assert (found.end_class, found.confidence) == (end_class, Confidence.HIGH)
    assert "tried 2.00 GiB" in found.summary
    assert found.fields["failure_kind"] == kind


@pytest.mark.parametrize("one", [failure("cuda_out_of_memory", fatal=False), failure("memory_error", ago=3600.0)])
def test_what_was_survived_is_not_blamed(one: Failure) -> None:
    """A failure that was caught, or an hour ago, has nothing to do with a later exit."""
    found = verdict(wait_status=ended(3), box=box(failures=(one,)))
    assert found.end_class is EndClass.APPLICATION_EXIT
    assert found.fields["failure_kind"] is None
    assert "no room" not in found.summary


def test_a_childs_end_says_that_the_model_lives() -> None:
    """A worker's death is the same class, and the summary says that the model lives on."""
    found = verdict(main=False, wait_status=KILLED, levels=OWN_OOM, node_oom_kill_delta=Known(1), others_alive=2)
    assert found.end_class is EndClass.CGROUP_OOM
    assert "child process (pid 100)" in found.summary
    assert "the model lives on (2 processes)" in found.summary


def test_another_containers_report_is_not_ours() -> None:
    """A report about a foreign group at the same second does not touch an exit of ours."""
    found = verdict(wait_status=ended(1), kmsg=report("/other", "/other/ctr", pid=4711))
    assert found.end_class is EndClass.APPLICATION_EXIT


def test_the_log_against_the_counters() -> None:
    """Where the log reports our kill and our counters stood still the verdict is less sure."""
    found = verdict(wait_status=KILLED, kmsg=report("/pod/model", "/pod/model"))
    assert found.end_class is EndClass.CGROUP_OOM
    assert found.confidence is Confidence.LOW


def test_an_uncaught_exception_without_a_status() -> None:
    """A fatal exception alone tells the class; how it ended is said to be unseen."""
    found = verdict(box=box(failures=(failure("exception"),)))
    assert (found.end_class, found.confidence) == (EndClass.APPLICATION_EXIT, Confidence.MEDIUM)
    assert "could not be observed" in found.summary


def test_a_signal_without_a_name() -> None:
    """Real-time signals have no name and are said by number."""
    assert verdict(wait_status=ended(by=40)).fields["signal"] == "signal 40"


@pytest.mark.parametrize(("status", "levels"), [(ended(by=signal.SIGSEGV), QUIET), (KILLED, OWN_OOM), (KILLED, ())])
def test_an_external_kill_is_not_claimed(status: Reading[WaitStatus], levels: tuple[LevelsBefore, ...]) -> None:
    """The rule itself claims no crash, no counted OOM kill, and no SIGKILL without counters."""
    facts = digest(replace(BASE, wait_status=status, levels=levels, node_oom_kill_delta=NO_STATUS))
    assert external_kill(facts) is None


def test_a_sigkill_with_the_nodes_counter_alone() -> None:
    """Own counters unknown, the node's stood still: from outside, less surely."""
    found = verdict(wait_status=KILLED, levels=(), node_oom_kill_delta=Known(0))
    assert (found.end_class, found.confidence) == (EndClass.EXTERNAL_KILL, Confidence.MEDIUM)


def test_a_log_that_names_another_branch() -> None:
    """An owner that is not above the victim cannot be matched by distance; it is named as the log has it."""
    found = verdict(
        wait_status=KILLED, levels=OWN_OOM, node_oom_kill_delta=Known(1), kmsg=report("/elsewhere", "/pod/model")
    )
    assert found.level == "/elsewhere"


def test_a_cut_log_leaves_the_owner_to_the_counters() -> None:
    """Where the line with the owner was lost the kill line still counts, and the counters name the owner."""
    line = "Memory cgroup out of memory: Killed process 100 (serve) total-vm:9kB, anon-rss:1kB, file-rss:0kB"
    found = verdict(wait_status=KILLED, levels=POD_OOM, node_oom_kill_delta=Known(1), kmsg=kmsg(line))
    assert (found.end_class, found.level) == (EndClass.CGROUP_OOM, "/pod")


def test_a_level_with_a_limit_that_cannot_be_read_may_be_the_owner() -> None:
    """An ancestor whose files are denied is as good as hidden: the node is not blamed for it."""
    denied = make.level(make.V2(), depth=1)
    gone = replace(denied, memory=replace(denied.memory, max_bytes=Unknown(Why.DENIED, "memory.max")))
    levels = (pair(FULL, replace(FULL, events={"oom_kill": 1})), LevelsBefore(before=gone, after=gone))
    found = verdict(wait_status=KILLED, levels=levels, node_oom_kill_delta=Known(1))
    assert (found.end_class, found.level) == (EndClass.CGROUP_OOM, None)


def test_v1_an_unlimited_level_is_never_nearest() -> None:
    """With two failcnts the level whose limit was lifted meanwhile is not named."""
    near, lifted = make.V1(rss=250 * MIB, limit=256 * MIB), make.V1(rss=900 * MIB)
    levels = (pair(lifted, replace(lifted, failcnt=5, oom_kill=1)), pair(near, replace(near, failcnt=5), depth=1))
    assert verdict(wait_status=KILLED, levels=levels, node_oom_kill_delta=Known(1)).level == "/pod"


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (make.load("torch.load", 500 * MIB), "while loading model.safetensors, tensor layer.0, 500.0 MiB in all"),
        (replace(make.load("torch.load", None), file=None, item=None), "while loading torch.load"),
    ],
)
def test_what_the_load_does_not_say_is_left_out(operation: Operation, words: str) -> None:
    """A load without file, tensor or counts is named by what there is."""
    assert verdict(wait_status=ended(1), box=box(operations=(operation,))).summary.endswith(words)


Contradict = Callable[[EndEvidence], EndEvidence]
CONTRADICTIONS: Final[dict[EndClass, tuple[Contradict, ...]]] = {
    EndClass.CGROUP_OOM: (
        lambda one: replace(one, node_oom_kill_delta=Known(0)),
        lambda one: replace(one, wait_status=ended(1)),
        lambda one: replace(one, box=box(mark=ExitMark(0.0, END, 0))),
        lambda one: replace(one, levels=QUIET),
    ),
    EndClass.GLOBAL_OOM: (
        lambda one: replace(one, node_oom_kill_delta=Known(0)),
        lambda one: replace(one, node_available_ratio=Known(0.9)),
        lambda one: replace(one, wait_status=ended(1)),
    ),
    EndClass.EXTERNAL_KILL: (lambda one: replace(one, node_oom_kill_delta=Known(1)),),
    EndClass.APPLICATION_EXIT: (lambda one: replace(one, levels=OWN_OOM),),
    EndClass.CRASH_SIGNAL: (lambda one: replace(one, levels=OWN_OOM),),
}

statuses = st.sampled_from(
    [NO_STATUS, KILLED, *(ended(by=one) for one in (signal.SIGTERM, signal.SIGSEGV)), *map(ended, (0, 1, 137, 143))]
)
boxes = st.sampled_from(
    [
        NO_BOX,
        box(sigterm_ago=2.0),
        box(failures=(failure("cuda_out_of_memory"),)),
        box(mark=ExitMark(0.0, END, None)),
        box(operations=(make.load("torch.load", None),)),
    ]
)
ends = st.builds(
    lambda **so: replace(BASE, **so),
    main=st.booleans(),
    wait_status=statuses,
    levels=st.sampled_from([(), QUIET, OWN_OOM, POD_OOM]),
    hidden_ancestors=st.booleans(),
    node_oom_kill_delta=st.sampled_from([Known(0), Known(1), NO_STATUS]),
    node_available_ratio=st.sampled_from([Known(0.01), Known(0.07), Known(0.5), NO_STATUS]),
    kmsg=st.sampled_from([NO_KMSG, Known(()), report("/pod/model", "/pod/model"), report("", "/pod/model")]),
    box=boxes,
    liveness_failures_answered=st.sampled_from([0, 2, 3, 9]),
    others_alive=st.integers(0, 2),
)


@given(evidence=ends, data=st.data())
def test_contradictions_never_raise_the_confidence(evidence: EndEvidence, data: st.DataObject) -> None:
    """Evidence against a class, added to any other evidence, either changes the class or makes it no surer."""
    before = classify(evidence)
    if before.end_class not in CONTRADICTIONS:
        return
    change = data.draw(st.sampled_from(CONTRADICTIONS[before.end_class]))
    after = classify(change(evidence))
    if after.end_class is before.end_class:
        assert RANK.index(after.confidence) <= RANK.index(before.confidence)


@given(evidence=ends)
def test_every_end_gets_a_whole_verdict(evidence: EndEvidence) -> None:
    """Any evidence gives a class, a sentence, next steps and an account of what was not known."""
    found = classify(evidence)
    assert found.summary
    assert found.next_steps
    assert isinstance(found.fields, MappingProxyType)
    assert ("hidden" in " ".join(found.missing)) >= evidence.hidden_ancestors
    if found.end_class is EndClass.UNKNOWN:
        assert found.confidence is Confidence.LOW
        assert evidence.wait_status not in (ended(0), ended(1))


@given(evidence=ends)
def test_a_quiet_kernel_is_never_blamed(evidence: EndEvidence) -> None:
    """Without a counted kill and without a report the OOM killer is not blamed."""
    quiet = replace(evidence, levels=QUIET, kmsg=NO_KMSG)
    assert classify(quiet).end_class not in (EndClass.CGROUP_OOM, EndClass.GLOBAL_OOM)
