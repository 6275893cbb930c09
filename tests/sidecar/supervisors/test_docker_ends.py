"""Ends of containers by the events and states of Docker and Podman."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sidecar.supervisors.docker_ends import EngineEvent, Inspected, end_of
from sidecar.verdict.supervisor_values import SupervisorEnd

RECORDED = Path(__file__).parent / "recorded"
PODMAN = "podman-4.3.1-events.jsonl"
"""Heard from a real service: og-b-x exited with 3 twice and was stopped, og-b-y was killed by its health check, og-b-z
hit its memory limit twice and was killed by hand."""
DOCKER = "docker-20.10.24-events.jsonl"
"""Heard from a real dockerd: what the names say, each removed at the end; d-exit restarted twice, d-oom once; d-kill
was killed, started again by `docker restart` and removed while it ran; d-health was unhealthy when killed."""
ID = "d" * 64
BEGAN, ENDED = 1000.0, 1060.0


def recorded(name: str, file: str = PODMAN) -> list[EngineEvent]:
    """Give the events of a container."""
    read = [json.loads(line) for line in (RECORDED / file).read_text().splitlines()]
    return [
        EngineEvent(
            container_id=one["Actor"]["ID"],
            action=one["Action"],
            at_wall_s=one["timeNano"] / 1e9,
            attributes=one["Actor"]["Attributes"],
        )
        for one in read
        if one["Actor"]["Attributes"]["name"] == name
    ]


def heard(action: str, at: float, **attributes: str) -> EngineEvent:
    """Make an event as Docker gives it."""
    return EngineEvent(container_id=ID, action=action, at_wall_s=at, attributes=attributes)


def inspected(**state: Any) -> Inspected:  # noqa: ANN401 - JSON
    """Make the state of a container."""
    return msgspec.convert({"Id": ID, "Name": "/llm", "RestartCount": 2, "State": state}, Inspected)


RUNNING = {"Running": True, "ExitCode": 0, "OOMKilled": False, "StartedAt": "2026-11-30T10:00:01Z"}
EXITED = {
    "Running": False,
    "ExitCode": 137,
    "OOMKilled": True,
    "StartedAt": "2026-11-30T09:00:00Z",
    "FinishedAt": "2026-11-30T10:00:00Z",
}


def ended(events: list[EngineEvent], now: Inspected, *, podman: bool = False) -> SupervisorEnd:
    """Give the end, which must be there."""
    found = end_of("Docker, container llm", events, now, podman=podman)
    assert found is not None
    return found


def words(end: SupervisorEnd) -> list[str]:
    """Give the kinds of its words."""
    return [word.kind.value for word in end.words]


def test_a_restarted_container_is_told_by_its_die_event() -> None:
    """The state is that of the next life already: code and time come from the event, the flag from the oom event."""
    events = [
        heard("start", BEGAN),
        heard("oom", ENDED - 0.1),
        heard("die", ENDED, exitCode="137"),
        heard("start", 1061),
    ]
    end = ended(events, inspected(**RUNNING))
    assert (end.exit_code, end.oom_killed, end.started_wall_s, end.finished_wall_s) == (137, True, BEGAN, ENDED)
    assert end.restart_count == 2


def test_the_flag_of_the_next_life_says_nothing() -> None:
    """OOMKilled false of a container that runs again is not held against an OOM kill."""
    assert ended([heard("die", ENDED, exitCode="137")], inspected(**RUNNING)).oom_killed is None


def test_a_stopped_container_is_told_by_its_state() -> None:
    """Without any event the state is enough as long as it is that of the end."""
    end = ended([], inspected(**EXITED))
    assert (end.exit_code, end.oom_killed, end.words) == (137, True, ())
    assert end.finished_wall_s is not None
    assert end.started_wall_s == end.finished_wall_s - 3600


def test_one_end_has_one_time_whoever_tells_of_it() -> None:
    """FinishedAt comes before the die event and stays: both words are of one end. An older one is of another."""
    state = inspected(**{**RUNNING, "FinishedAt": "2026-11-30T10:00:00Z"})
    finished = ended([], inspected(**EXITED)).finished_wall_s
    assert finished is not None
    assert ended([heard("die", finished + 0.02, exitCode="1")], state).finished_wall_s == finished
    assert ended([heard("die", finished + 60, exitCode="1")], state).finished_wall_s == finished + 60


def test_a_running_container_that_never_ended_has_no_end() -> None:
    """Go's zero time is no time."""
    never = inspected(**RUNNING, FinishedAt="0001-01-01T00:00:00Z")
    assert end_of("x", [heard("start", BEGAN)], never, podman=False) is None


def test_docker_stop_is_a_deletion() -> None:
    """Kill, die, stop: somebody asked the engine, and with which signal."""
    events = [heard("kill", 1059, signal="15"), heard("die", ENDED, exitCode="143"), heard("stop", 1060.1)]
    end = ended(events, inspected(**RUNNING))
    assert words(end) == ["deletion"]
    assert "signal 15" in end.words[0].text


def test_a_kill_by_hand_is_no_deletion() -> None:
    """`docker kill` gives no stop event: whoever sent it is not known."""
    assert (
        words(ended([heard("kill", 1059, signal="9"), heard("die", ENDED, exitCode="137")], inspected(**RUNNING))) == []
    )


def test_a_kill_behind_a_failed_check_is_a_health_check() -> None:
    """Docker's own word "unhealthy", then a kill (autoheal, Swarm): the check ended it, with its output."""
    log = [{"ExitCode": 1, "Output": "connection refused\n"}]
    state = inspected(**EXITED, Health={"Status": "unhealthy", "FailingStreak": 3, "Log": log})
    events = [heard("health_status: unhealthy", 1050), heard("kill", 1059), heard("die", ENDED, exitCode="137")]
    end = ended(events, state)
    assert words(end) == ["liveness_kill"]
    assert "connection refused" in end.words[0].text


def test_a_check_that_recovered_killed_nobody() -> None:
    """The last word of the check counts."""
    events = [heard("health_status: unhealthy", 1040), heard("health_status: healthy", 1050), heard("kill", 1059)]
    assert words(ended([*events, heard("die", ENDED, exitCode="137")], inspected(**RUNNING))) == []


def test_events_of_an_earlier_life_do_not_count() -> None:
    """An OOM event and a stop before the last start belong to the end before."""
    first = [heard("oom", 900), heard("kill", 901), heard("die", 902, exitCode="137"), heard("stop", 903)]
    end = ended([*first, heard("start", BEGAN), heard("die", ENDED, exitCode="1")], inspected(**RUNNING))
    assert (end.exit_code, end.oom_killed, end.words) == (1, None, ())


def test_podman_says_how_a_restarted_container_exited() -> None:
    """The last end of a real container that was restarted twice and then stopped."""
    events = recorded("og-b-x")
    second = next(at for at in range(len(events) - 1, 0, -1) if events[at].attributes.get("exitCode") == "3")
    end = ended(events[: second + 1], inspected(**RUNNING), podman=True)
    assert (end.exit_code, words(end)) == (3, [])
    assert end.started_wall_s is not None
    assert end.finished_wall_s is not None
    assert 2.5 < end.finished_wall_s - end.started_wall_s < 4
    assert ended(events, inspected(**RUNNING), podman=True).exit_code == 137


def test_podmans_health_check_is_told_by_its_exit() -> None:
    """Podman's health_status does not say how the check went, the exec behind it does; the kill follows."""
    assert words(ended(recorded("og-b-y"), inspected(**EXITED), podman=True)) == ["liveness_kill"]


@pytest.mark.parametrize(
    ("name", "code", "oom", "kinds"),
    [
        ("d-exit", 3, None, []),
        ("d-oom", 137, True, []),
        ("d-stop", 137, None, ["deletion"]),
        ("d-kill", 137, None, []),
        ("d-health", 137, None, ["liveness_kill"]),
    ],
)
def test_docker_tells_each_end(name: str, code: int, oom: bool | None, kinds: list[str]) -> None:  # noqa: FBT001 - a row
    """By its events alone, as the containers are gone: a restarted one, an OOM kill, a stop, a kill, a failed check."""
    end = ended(recorded(name, DOCKER), Inspected(id=ID))
    assert (end.exit_code, end.oom_killed, words(end)) == (code, oom, kinds)


def test_podmans_false_flag_says_nothing() -> None:
    """Podman 4.3 leaves OOMKilled false on real OOM kills."""
    state = inspected(**{**EXITED, "OOMKilled": False})
    assert ended([], state, podman=True).oom_killed is None
    assert ended([], state).oom_killed is False
    assert ended([], inspected(**EXITED), podman=True).oom_killed is True


def test_a_directory_is_traced_to_the_host() -> None:
    """The mount with the longest path in the container decides; who has that path, or one above it, uses it."""
    mounts = [{"Source": "/srv", "Destination": "/run"}, {"Source": "/data/og", "Destination": "/run/oomguard"}]
    own = msgspec.convert({"Id": ID, "Mounts": mounts}, Inspected)
    assert own.source_of("/run/oomguard") == "/data/og"
    assert own.source_of("/run/other") == "/srv/other"
    assert own.source_of("/tmp") is None
    assert own.uses("/data/og")
    assert own.uses("/srv/other")
    assert not own.uses("/data")
