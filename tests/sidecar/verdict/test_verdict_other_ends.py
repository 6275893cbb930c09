"""Verdicts: crashes, exits, kills from outside, health checks, failed allocations; contradictions add no confidence."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.model import ExitMark, Failure, Known, Operation, Reading, Unknown, Why
from sidecar.verdict.classify import classify
from sidecar.verdict.ends import external_kill
from sidecar.verdict.facts import digest
from sidecar.verdict.joining import lean
from sidecar.verdict.supervisor_values import SupervisorEnd
from sidecar.verdict.values import (
    Confidence,
    EndClass,
    EndEvidence,
    GpuEvent,
    LevelsBefore,
    WaitStatus,
)
from tests.sidecar import making as make
from tests.sidecar.making import MIB
from tests.sidecar.verdict.ending import (
    BASE,
    END,
    FULL,
    KILLED,
    NO_BOX,
    NO_KMSG,
    NO_STATUS,
    OWN_OOM,
    POD_OOM,
    QUIET,
    RANK,
    box,
    ended,
    failure,
    kmsg,
    pair,
    report,
    verdict,
)


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


@pytest.mark.parametrize(
    "one", [failure("cuda_out_of_memory", fatal=False, ago=9.0), failure("memory_error", ago=3600.0)]
)
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
    runner_kills=st.sampled_from([None, (0, 0), (0, 1)]),
    gpu=st.sampled_from([(), (GpuEvent(at=make.at(END - 1), gpu=0, code=79),)]),
    supervisor=st.sampled_from([(), (SupervisorEnd(source="API", exit_code=137, oom_killed=True),)]),
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
def test_what_is_left_out_of_kept_evidence_changes_no_verdict(evidence: EndEvidence) -> None:
    """Evidence that was thinned out, to be judged again later, gives the same verdict."""
    assert classify(lean(evidence)) == classify(evidence)


@given(evidence=ends)
def test_a_quiet_kernel_is_never_blamed(evidence: EndEvidence) -> None:
    """Without a counted kill, a report and a word of the runtime the OOM killer is not blamed."""
    quiet = replace(evidence, levels=QUIET, kmsg=NO_KMSG, supervisor=())
    assert classify(quiet).end_class not in (EndClass.CGROUP_OOM, EndClass.GLOBAL_OOM)
