"""Verdicts: kills by the kernel, whose limit it was, and whose kill it was."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Final

import pytest

from guard.model import ExitMark, Known, Reading
from sidecar import ends
from sidecar.verdict.values import (
    Confidence,
    EndClass,
    LevelsBefore,
    WaitStatus,
)
from tests.sidecar import making as make
from tests.sidecar.making import MIB
from tests.sidecar.verdict.ending import (
    END,
    FULL,
    KILLED,
    NO_STATUS,
    OWN_OOM,
    POD_OOM,
    QUIET,
    box,
    ended,
    pair,
    report,
    verdict,
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


@pytest.mark.parametrize(
    ("node", "end_class", "confidence"),
    [
        (Known(1), EndClass.CGROUP_OOM, Confidence.HIGH),
        (NO_STATUS, EndClass.CGROUP_OOM, Confidence.MEDIUM),
        (Known(0), EndClass.EXTERNAL_KILL, Confidence.HIGH),
    ],
)
def test_a_group_that_was_first_read_at_the_end(
    node: Reading[int], end_class: EndClass, confidence: Confidence
) -> None:
    """Its count may be of earlier lives: the node's own count since the start decides, else it is less sure."""
    after = OWN_OOM[0].after
    found = verdict(wait_status=KILLED, levels=ends.pair((), (after,)), node_oom_kill_delta=node)
    assert (found.end_class, found.confidence) == (end_class, confidence)
    if end_class is EndClass.CGROUP_OOM:
        assert found.level == "/pod/model"
        assert any("stood at 1 when it was first read" in one.text for one in found.statements)
        assert found.fields["oom_kills"] is None
    exited = verdict(wait_status=ended(1), levels=ends.pair((), (after,)), node_oom_kill_delta=node)
    assert exited.end_class is EndClass.APPLICATION_EXIT
    assert "killed another" not in exited.summary


def test_what_the_runner_counted_tells_where_no_sidecar_did() -> None:
    """A kill while no sidecar was there, or before its first reading: the runner's count decides, either way."""
    so = {"wait_status": KILLED, "node_oom_kill_delta": NO_STATUS, "hidden_ancestors": True}
    unseen = verdict(**so, levels=(), runner_kills=(3, 4))
    assert (unseen.end_class, unseen.level) == (EndClass.CGROUP_OOM, None)
    assert "its own cgroup, or one above it" in unseen.summary
    assert any(one.source == "oomguard run" for one in unseen.statements)
    first = ends.pair((), (OWN_OOM[0].after,))
    assert verdict(**so, levels=first, runner_kills=(0, 1)).level == "/pod/model"
    assert verdict(**so, levels=first, runner_kills=(1, 1)).end_class is EndClass.EXTERNAL_KILL
    assert verdict(**{**so, "wait_status": ended(1)}, levels=(), runner_kills=(0, 1)).end_class is (
        EndClass.APPLICATION_EXIT
    )


def test_a_report_whose_group_is_hidden_is_taken_by_its_time() -> None:
    """In a cgroup namespace the own level is "/": the counter says that it was killed, the log by what limit."""
    root = (pair(FULL, replace(FULL, events={"oom_kill": 1}, local={"oom_kill": 1}), name="/"),)
    so = {"wait_status": KILLED, "levels": root, "node_oom_kill_delta": Known(1), "node_pid": None}
    log = report("/kubepods/pod1", "/kubepods/pod1/model")
    found = verdict(**so, kmsg=log)
    assert (found.end_class, found.level) == (EndClass.CGROUP_OOM, "/kubepods/pod1")
    assert any("by its time" in one.source for one in found.statements)
    other = report("/kubepods/pod2", "/kubepods/pod2/model", pid=7)
    assert verdict(**so, kmsg=Known((*log.value, *other.value))).fields["oom_memcg"] is None


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
