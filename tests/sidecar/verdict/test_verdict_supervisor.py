"""Verdicts with the word of a supervisor: its reasons decide, its exit status stands in, its denials count against."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.model import Known, Reading
from sidecar.verdict.classify import classify
from sidecar.verdict.supervisor_values import SupervisorEnd, SupervisorWord, SupervisorWordKind
from sidecar.verdict.values import Confidence, EndClass, WaitStatus
from tests.sidecar import making as make
from tests.sidecar.verdict.ending import BASE, END, KILLED, NO_STATUS, OWN_OOM, RANK, ended, report, verdict

SOURCE = "Kubernetes API, pod team/llm, container server"
Kind = SupervisorWordKind


def said(*kinds: Kind, ago: float | None = 1.0, code: int | None = None, oom: bool | None = None) -> SupervisorEnd:
    """What the supervisor says, some time before the end."""
    at_wall_s = None if ago is None else make.at(END).wall_s - ago
    words = tuple(SupervisorWord(kind=kind, text=f"event {kind}", at_wall_s=at_wall_s) for kind in kinds)
    return SupervisorEnd(source=SOURCE, exit_code=code, oom_killed=oom, words=words, restart_count=4)


@pytest.mark.parametrize(
    ("kind", "end_class"),
    [
        (Kind.LIVENESS_KILL, EndClass.HEALTH_CHECK),
        (Kind.STARTUP_KILL, EndClass.HEALTH_CHECK),
        (Kind.WATCHDOG, EndClass.HEALTH_CHECK),
        (Kind.EVICTION, EndClass.EVICTION),
        (Kind.DELETION, EndClass.DELETION),
        (Kind.USERSPACE_OOM, EndClass.USERSPACE_OOM),
    ],
)
@pytest.mark.parametrize("status", [KILLED, ended(143), ended(0), ended(by=signal.SIGTERM), NO_STATUS])
def test_a_stop_with_a_reason(kind: Kind, end_class: EndClass, status: Reading[WaitStatus]) -> None:
    """Who was stopped, however it ended then, was stopped for the reason that the supervisor gives."""
    found = verdict(wait_status=status, supervisor=(said(kind),))
    assert (found.end_class, found.confidence) == (end_class, Confidence.HIGH)
    assert f"event {kind}" in found.summary
    assert found.statements[0].source == SOURCE
    assert found.fields["restart_count"] == 4


def test_a_failed_probe_is_told_as_a_stop_too_and_comes_first() -> None:
    """Kubernetes tells of a liveness kill, and then of a container that is stopped."""
    found = verdict(wait_status=KILLED, supervisor=(said(Kind.DELETION, Kind.LIVENESS_KILL),))
    assert found.end_class is EndClass.HEALTH_CHECK


def test_a_server_that_answers_a_stop_with_a_code_of_its_own() -> None:
    """It was stopped all the same, less surely."""
    found = verdict(wait_status=ended(1), supervisor=(said(Kind.EVICTION),))
    assert (found.end_class, found.confidence) == (EndClass.EVICTION, Confidence.MEDIUM)


@pytest.mark.parametrize("status", [ended(by=signal.SIGSEGV), ended(by=signal.SIGABRT)])
def test_a_crash_is_no_stop(status: Reading[WaitStatus]) -> None:
    """A signal of its own making is a crash, although it was being deleted; a watchdog's SIGABRT is none."""
    assert verdict(wait_status=status, supervisor=(said(Kind.DELETION),)).end_class is EndClass.CRASH_SIGNAL
    by_watchdog = verdict(wait_status=ended(by=signal.SIGABRT), supervisor=(said(Kind.WATCHDOG),))
    assert (by_watchdog.end_class, by_watchdog.confidence) == (EndClass.HEALTH_CHECK, Confidence.HIGH)


def test_what_came_after_the_end_is_no_cause() -> None:
    """A pod that was deleted a minute after its server crashed did not crash for that."""
    found = verdict(wait_status=ended(3), supervisor=(said(Kind.DELETION, ago=-60.0),))
    assert found.end_class is EndClass.APPLICATION_EXIT
    assert verdict(wait_status=KILLED, supervisor=(said(Kind.DELETION, ago=None),)).end_class is EndClass.DELETION


def test_the_kernels_own_counters_come_first() -> None:
    """A process that the OOM killer took was its victim, although somebody was about to evict it."""
    found = verdict(wait_status=KILLED, levels=OWN_OOM, node_oom_kill_delta=Known(1), supervisor=(said(Kind.EVICTION),))
    assert found.end_class is EndClass.CGROUP_OOM


def test_an_exit_code_of_the_supervisor_stands_in() -> None:
    """Where nobody saw the end its exit code is taken, with its source; 128 + n is a signal, and never quite sure."""
    exited = verdict(supervisor=(said(code=3),))
    assert (exited.end_class, exited.confidence, exited.fields["exit_code"]) == (
        EndClass.APPLICATION_EXIT,
        Confidence.HIGH,
        3,
    )
    killed = verdict(supervisor=(said(code=137),))
    assert (killed.end_class, killed.confidence) == (EndClass.EXTERNAL_KILL, Confidence.MEDIUM)
    assert killed.fields["signal"] == "SIGKILL"
    assert [one.source for one in killed.statements if "SIGKILL" in one.text] == [SOURCE]
    alone = verdict(supervisor=(said(code=137),), levels=(), node_oom_kill_delta=NO_STATUS)
    assert alone.end_class is EndClass.UNKNOWN


def test_another_exit_status_than_was_seen_counts_against() -> None:
    """A supervisor that tells another end than the one that was seen makes the verdict less sure; 143 is SIGTERM."""
    assert verdict(wait_status=ended(3), supervisor=(said(code=5),)).confidence is Confidence.MEDIUM
    assert verdict(wait_status=ended(3), supervisor=(said(code=3),)).confidence is Confidence.HIGH
    told = verdict(wait_status=ended(by=signal.SIGTERM), supervisor=(said(code=143),))
    assert told.confidence is Confidence.HIGH


def test_the_runtimes_word_for_an_oom_kill() -> None:
    """It decides where no counter is seen, less surely; against quiet counters it is a guess."""
    blind = verdict(wait_status=KILLED, levels=(), node_oom_kill_delta=NO_STATUS, supervisor=(said(oom=True),))
    assert (blind.end_class, blind.confidence, blind.level) == (EndClass.CGROUP_OOM, Confidence.MEDIUM, None)
    quiet = verdict(wait_status=KILLED, supervisor=(said(oom=True),))
    assert (quiet.end_class, quiet.confidence) == (EndClass.CGROUP_OOM, Confidence.LOW)
    exited = verdict(wait_status=ended(1), supervisor=(said(oom=True),))
    assert (exited.end_class, exited.confidence) == (EndClass.APPLICATION_EXIT, Confidence.MEDIUM)
    node = verdict(wait_status=KILLED, levels=(), node_oom_kill_delta=NO_STATUS, supervisor=(said(Kind.NODE_OOM),))
    assert node.end_class is EndClass.GLOBAL_OOM


def test_a_denied_oom_kill_counts_against_counters_alone() -> None:
    """Runtimes miss kills, so their denial lowers what counters say, and not what the kernel log names."""
    own = {"wait_status": KILLED, "levels": OWN_OOM, "node_oom_kill_delta": Known(1)}
    assert verdict(**own, supervisor=(said(oom=False),)).confidence is Confidence.MEDIUM
    assert verdict(**own, kmsg=report("/pod/model", "/pod/model"), supervisor=(said(oom=False),)).confidence is (
        Confidence.HIGH
    )


@given(
    code=st.one_of(st.none(), st.integers(0, 255)),
    told=st.builds(
        lambda oom, kinds: said(*kinds, oom=oom),
        st.sampled_from([None, True, False]),
        st.lists(st.sampled_from(Kind), max_size=3, unique=True),
    ),
    status=st.sampled_from([NO_STATUS, KILLED, ended(0), ended(1), ended(143), ended(by=signal.SIGSEGV)]),
)
def test_whatever_it_says_there_is_a_verdict(
    code: int | None, told: SupervisorEnd, status: Reading[WaitStatus]
) -> None:
    """Any word gives a whole verdict, and one that contradicts the status makes it no surer."""
    before = classify(replace(BASE, wait_status=status, supervisor=(told,)))
    after = classify(replace(BASE, wait_status=status, supervisor=(replace(told, exit_code=code),)))
    assert after.summary
    assert after.next_steps
    if after.end_class is before.end_class and isinstance(status, Known):
        assert RANK.index(after.confidence) <= RANK.index(before.confidence)
