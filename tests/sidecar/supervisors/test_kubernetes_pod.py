"""A pod's JSON and its events as ends of containers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sidecar.supervisors.kubernetes_pod import Pod, containers_of
from sidecar.supervisors.kubernetes_words import Event
from sidecar.supervisors.values import Container
from sidecar.verdict.supervisor_values import SupervisorWordKind
from tests.sidecar.supervisors.kube import ERROR, OOM, event, pod, status


def told(document: dict[str, Any], *events: dict[str, Any]) -> dict[str, Container]:
    """Read a pod and its events as the sidecar in it does."""
    read = [msgspec.convert(one, Event, strict=False) for one in events]
    parsed = msgspec.json.decode(msgspec.json.encode(document), type=Pod)
    found = containers_of(parsed, read, own="oomguard", directory="/run/oomguard")
    return {one.name: one for one in found}


def kinds(container: Container) -> list[SupervisorWordKind]:
    """Give the kinds of the words about its end."""
    assert container.end is not None
    return [word.kind for word in container.end.words]


def test_a_container_killed_at_its_limit_says_so() -> None:
    """Reason, exit code, times and restarts of the last life are taken over, and the OOM kill is said."""
    server = told(pod(5, status("server", 3, **OOM), status("proxy", 0)))["server"]
    end = server.end
    assert end is not None
    assert (end.exit_code, end.oom_killed, end.reason, end.restart_count) == (137, True, "OOMKilled", 3)
    assert end.finished_wall_s is not None
    assert end.started_wall_s is not None
    assert end.finished_wall_s - end.started_wall_s == 3600
    assert "shop/llm-0" in end.source
    assert server.shares
    assert server.ready
    assert server.id == "c" * 64


def test_a_container_without_an_end_has_none() -> None:
    """One that never ended says nothing of an end, and one that does not use our directory does not share it."""
    proxy = told(pod(5, status("server", 0), status("proxy", 0)))["proxy"]
    assert proxy.end is None
    assert not proxy.shares


def test_an_invented_exit_code_is_not_one() -> None:
    """137 of a container that was lost was made up by the kubelet."""
    lost = {**OOM, "reason": "ContainerStatusUnknown", "message": "The container could not be located"}
    end = told(pod(5, status("server", 1, **lost)))["server"].end
    assert end is not None
    assert (end.exit_code, end.oom_killed, end.reason) == (None, None, "ContainerStatusUnknown")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Container server failed liveness probe, will be restarted", SupervisorWordKind.LIVENESS_KILL),
        ("Container server failed startup probe, will be restarted", SupervisorWordKind.STARTUP_KILL),
        ("Stopping container server", SupervisorWordKind.DELETION),
    ],
)
def test_a_killing_event_says_why(message: str, kind: SupervisorWordKind) -> None:
    """The kubelet's event names the probe, or that it was told to stop; its time is kept."""
    failed = event("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 503", "2026-11-30T09:59:30Z")
    server = told(pod(5, status("server", 1, **ERROR)), failed, event("Killing", message))["server"]
    assert kinds(server) == [kind]
    assert server.end is not None
    word = server.end.words[0]
    assert message in word.text
    assert server.end.finished_wall_s is not None
    assert word.at_wall_s == server.end.finished_wall_s - 20


def test_failed_probes_alone_are_no_kill() -> None:
    """Unhealthy events without a Killing one explain no end."""
    failed = event("Unhealthy", "Readiness probe failed: connection refused")
    assert kinds(told(pod(5, status("server", 1, **OOM)), failed)["server"]) == []


def test_events_of_another_life_or_container_are_left_out() -> None:
    """A kill before this life began, or of the container beside it, says nothing of its end."""
    message = "Container server failed liveness probe, will be restarted"
    earlier = event("Killing", message, "2026-11-30T08:00:00Z")
    other = event("Killing", message.replace("server", "proxy"), container="proxy")
    assert kinds(told(pod(5, status("server", 1, **OOM)), earlier, other)["server"]) == []


def test_an_evicted_pod_says_so() -> None:
    """The pod's own reason holds for each of its containers."""
    document = pod(5, {**status("server", 0), "state": {"terminated": ERROR}})
    document["status"] |= {"reason": "Evicted", "message": "The node was low on resource: memory."}
    server = told(document)["server"]
    assert kinds(server) == [SupervisorWordKind.EVICTION]
    assert not server.running


def test_a_deletion_is_dated_by_when_it_was_asked_for() -> None:
    """The API gives the deadline; the wish came a grace period earlier, and counts for ends behind it."""
    times = {"deletionTimestamp": "2026-11-30T10:00:20Z", "deletionGracePeriodSeconds": 30}
    server = told(pod(5, status("server", 0, **ERROR), **times))["server"]
    assert kinds(server) == [SupervisorWordKind.DELETION]
    assert server.end is not None
    assert server.end.finished_wall_s is not None
    assert server.end.words[0].at_wall_s == server.end.finished_wall_s - 10


def test_a_deletion_asked_for_later_did_not_end_it() -> None:
    """A crash before the wish is not laid to it."""
    times = {"deletionTimestamp": "2026-11-30T11:00:00Z", "deletionGracePeriodSeconds": 30}
    assert kinds(told(pod(5, status("server", 0, **OOM), **times))["server"]) == []


def test_a_deletion_is_known_while_the_container_runs() -> None:
    """Words without an end, for the container that is to end; what was asked for before it began is no word of it."""
    times = {"deletionTimestamp": "2026-11-30T10:01:00Z", "deletionGracePeriodSeconds": 30}
    stopping = told(pod(5, status("server", 0), **times))["server"].stopping
    assert stopping is not None
    assert [word.kind for word in stopping.words] == [SupervisorWordKind.DELETION]
    assert (stopping.exit_code, stopping.finished_wall_s) == (None, None)
    early = {**times, "deletionTimestamp": "2026-11-30T09:59:00Z"}
    assert told(pod(5, status("server", 1, **OOM), **early))["server"].stopping is None
    assert told(pod(5, status("server", 1, **OOM)))["server"].stopping is None


def test_a_disruption_is_named() -> None:
    """The condition DisruptionTarget tells a preemption from a deletion."""
    document = pod(5, status("server", 0, **ERROR))
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for x"}
    document["status"]["conditions"] = [{**condition, "lastTransitionTime": "2026-11-30T09:59:50Z"}]
    assert kinds(told(document)["server"]) == [SupervisorWordKind.EVICTION]


def test_the_node_says_its_memory_was_short() -> None:
    """An eviction told by an event alone is found as well."""
    evicted = event("Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi.")
    assert kinds(told(pod(5, status("server", 0, **ERROR)), evicted)["server"]) == [SupervisorWordKind.EVICTION]
