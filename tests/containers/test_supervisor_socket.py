"""Podman's own socket: a restart, an OOM kill, a failed health check and a stop of real containers, seen through it."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sidecar.clock import SystemClock
from sidecar.supervisors.docker import DockerSource
from sidecar.supervisors.values import Container, Trouble
from sidecar.verdict.supervisor_values import SupervisorEnd
from tests.containers import podman as images
from tests.containers.podman import BASE, ROOT, Podman
from tests.containers.test_containers import wait_for
from tests.lab.kit.wait import until
from tests.sidecar.daemons import Daemon
from tests.sidecar.supervisors.heard import Heard, running

pytestmark = [pytest.mark.lab]

NAME = "og-socket-model"
GROW = "import time; time.sleep(1); b = [bytearray(1 << 20) for _ in range(400)]"


@pytest.fixture(scope="module")
def socket(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Podman's service, listening."""
    path = tmp_path_factory.mktemp("socket") / "podman.sock"
    command = ["podman", "system", "service", "--time=0", f"unix://{path}"]
    with subprocess.Popen(command, env=podman.environment, cwd=path.parent, stderr=subprocess.DEVNULL) as service:
        try:
            until(path.exists, 30, "podman's socket")
            yield path
        finally:
            service.kill()


@dataclass
class Play:
    """Containers that share a directory with us, and what the source says of them."""

    podman: Podman
    directory: Path
    heard: Heard = field(default_factory=Heard)

    def run(self, *arguments: str, name: str = NAME) -> None:
        """Start a container in the background."""
        volume = f"{self.directory}:/run/oomguard"
        self.podman("run", "-d", "--name", name, "--network=none", "-v", volume, *arguments)

    def last(self) -> Container:
        """Give what was said last of the container."""
        found = self.heard.last(NAME)
        assert found is not None
        return found

    async def end(self) -> SupervisorEnd:
        """Wait for an end."""
        await self.heard.until(lambda: (one := self.heard.last(NAME)) is not None and one.end is not None)
        end = self.last().end
        assert end is not None
        return end


@pytest.fixture
async def play(podman: Podman, socket: Path, tmp_path: Path) -> AsyncIterator[Play]:
    """A source that follows the socket; the container of the test is removed behind it."""
    played = Play(podman, tmp_path)
    source = DockerSource(
        f"unix://{socket}", SystemClock(), own_id=None, directory=str(tmp_path), wanted=lambda _id, _name: False
    )
    try:
        async with running(source.follow(played.heard.take)):
            await played.heard.until(lambda: played.heard.all)
            yield played
    finally:
        podman("rm", "-f", "-t", "0", NAME, check=False)
        (ROOT / "oom").unlink(missing_ok=True)  # conmon's mark of an OOM kill, in the folder it was started from


async def test_a_restart_is_seen(play: Play) -> None:
    """The engine restarts a container that exits: its code, its times and the number of restarts are told."""
    play.run("--restart=on-failure:2", BASE, "sh", "-c", "sleep 1; exit 3")
    end = await play.end()
    assert (end.exit_code, end.words) == (3, ())
    assert end.started_wall_s is not None
    assert end.finished_wall_s is not None
    assert 0.5 < end.finished_wall_s - end.started_wall_s < 20
    await play.heard.until(lambda: (play.last().restart_count or 0) >= 1)
    assert play.last().supervisor == "podman"
    assert play.last().shares


async def test_an_oom_kill_is_seen_as_far_as_podman_tells(play: Play) -> None:
    """The kernel kills at the memory limit: 137 is told; that it was an OOM kill Podman 4.3 does not say."""
    play.run("--restart=on-failure:1", "--memory=48m", BASE, "python3", "-c", GROW)
    end = await play.end()
    assert end.exit_code == 137
    assert end.oom_killed is not False
    await play.heard.until(lambda: (play.last().restart_count or 0) >= 1)


async def test_a_failed_health_check_is_seen(play: Play) -> None:
    """A check whose action is a kill: the container was ended by its health check."""
    play.run("--health-cmd=false", "--health-retries=1", "--health-on-failure=kill", BASE, "sleep", "300")
    play.podman("healthcheck", "run", NAME, check=False)
    end = await play.end()
    assert end.exit_code == 137
    await play.heard.until(lambda: (one := play.last().end) is not None and one.words)
    last = play.last().end
    assert last is not None
    assert [word.kind.value for word in last.words] == ["liveness_kill"]


async def test_a_removed_container_is_told_by_what_was_heard(play: Play) -> None:
    """`rm -f` leaves nothing to inspect: the end is told all the same, and a later one of its name has its own."""
    play.run(BASE, "sleep", "300")
    await play.heard.until(lambda: play.heard.last(NAME))
    play.podman("rm", "-f", "-t", "0", NAME)
    end = await play.end()
    assert end.exit_code == 137
    play.run(BASE, "sh", "-c", "exit 5")
    await play.heard.until(lambda: (one := play.last().end) is not None and one.exit_code == 5)


async def test_containers_that_do_not_share_are_passed_over(play: Play, tmp_path: Path) -> None:
    """Somebody else's container on the same host is none of ours."""
    other = tmp_path.parent / "other"
    other.mkdir()
    play.podman("run", "--rm", "--network=none", "-v", f"{other}:/data", BASE, "true")
    play.run(BASE, "sh", "-c", "exit 0")
    end = await play.end()
    assert end.exit_code == 0
    assert {one.name for said in play.heard.all for one in said} == {NAME}


LEAK = "import urllib.request as u; [u.urlopen('http://127.0.0.1:8000/leak?mib=8', timeout=20) for _ in range(40)]"


@pytest.fixture
def daemon(podman: Podman, socket: Path, tmp_path: Path) -> Iterator[Daemon]:
    """A sidecar that was given the socket, and shares a directory with containers."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with Daemon(shared, tmp_path / "log", "--supervised-socket", str(socket)) as running_daemon:
        try:
            yield running_daemon
        finally:
            podman("rm", "-f", "-t", "0", NAME, check=False)
            (ROOT / "oom").unlink(missing_ok=True)


def begin(podman: Podman, folder: Path, *arguments: str) -> None:
    """Start the example model in a container that shares the daemon's directory."""
    volume = f"{folder / 'shared'}:/run/oomguard"
    podman("run", "-d", "--name", NAME, "--network=none", "-v", volume, *arguments, images.MODEL)


def supervised(daemon: Daemon) -> dict[str, Any] | None:
    """Give what the supervisor says of the model, once it does."""
    model = daemon.get("/status")["models"].get("example")
    return model["supervised"][0] if model and model["supervised"] else None


def test_the_sidecar_counts_the_restarts_of_an_oom(podman: Podman, daemon: Daemon, tmp_path: Path) -> None:
    """A model that is killed at its limit: the engine's count, and its word in events, beside the sidecar's verdict."""
    begin(podman, tmp_path, "--restart=always", "--memory=96m")
    until(lambda: supervised(daemon), 40, "the container to be known")

    def killed() -> dict[str, Any] | None:
        found = daemon.get("/incidents")["incidents"]
        if not found:
            podman("exec", NAME, "python3", "-c", LEAK, check=False)  # again, until the server listens
        return found[0] if found else None

    incident = until(killed, 60, "the kill", pause_seconds=1.0)
    assert (incident["class"], incident["confidence"]) == ("cgroup_oom", "high")
    told = until(lambda: [one for one in daemon.events() if one["event"] == "supervisor_told"], 60, "the engine's word")
    assert (told[0]["model"], told[0]["supervisor"], told[0]["exit_code"]) == ("example", "podman", 137)
    incident = daemon.get("/incidents")["incidents"][0]
    assert any(NAME in one["source"] or NAME in one["text"] for one in incident["evidence"])
    until(lambda: (supervised(daemon) or {}).get("restart_count"), 60, "the restart to be counted")
    series = 'oomguard_container_restarts{model="example",supervisor="podman"} '
    until(lambda: series in daemon.text("/metrics"), 30, "the metric")


def test_a_kill_by_the_health_check_is_told_as_one(podman: Podman, daemon: Daemon, tmp_path: Path) -> None:
    """SIGKILL says nothing of who sent it; the engine's events do, before the first verdict or a moment later."""
    begin(podman, tmp_path, "--health-cmd=false", "--health-retries=1", "--health-on-failure=kill")
    until(lambda: supervised(daemon), 40, "the container to be known")
    podman("healthcheck", "run", NAME, check=False)

    def refined() -> dict[str, Any] | None:
        found = daemon.get("/incidents")["incidents"]
        return found[0] if found and found[0]["class"] == "health_check" else None

    incident = until(refined, 60, "the verdict")
    assert any(NAME in one["source"] for one in incident["evidence"])
    assert len(daemon.get("/incidents")["incidents"]) == 1


SIDECAR = "og-socket-sidecar"


@pytest.fixture
def beside(podman: Podman, socket: Path) -> Iterator[Podman]:
    """Model and sidecar in containers of their own that share a volume; the sidecar has the socket, and no root."""
    socket.chmod(0o666)  # elsewhere its group is added to the sidecar's
    engine = ("-v", f"{socket}:/run/engine.sock:ro", "-e", "OOMGUARD_SUPERVISED_SOCKET=/run/engine.sock")
    least = ("--cap-drop=ALL", "--read-only", "--security-opt=no-new-privileges", "--memory=64m")
    volume = ("-v", "og-socket-shared:/run/oomguard", "--network=none")
    podman("run", "-d", "--name", SIDECAR, *volume, *least, *engine, images.SIDECAR)
    podman("run", "-d", "--name", NAME, *volume, "--restart=always", images.MODEL)
    try:
        yield podman
    finally:
        podman("rm", "-f", "-t", "0", NAME, SIDECAR, check=False)
        podman("volume", "rm", "-f", "og-socket-shared", check=False)


def test_a_sidecar_in_a_container_finds_the_models(beside: Podman) -> None:
    """It knows itself by its mounts, and the model's container as the one that has the same volume."""

    def seen() -> dict[str, Any] | None:
        model = beside.get_json(SIDECAR, "http://127.0.0.1:9475/status")["models"].get("example")
        return model["supervised"][0] if model and model["supervised"] else None

    found = wait_for("the container to be known", seen, 60)
    assert (found["name"], found["supervisor"], found["running"], found["end"]) == (NAME, "podman", True, None)
    beside("exec", NAME, "python3", "-c", "import os; os.kill(-1, 9)", check=False)  # all but the first process
    again = wait_for("the restart", lambda: (one := seen()) and one["restart_count"] and one["end"] and one, 60)
    assert again["end"]["exit_code"] == 137


async def test_a_socket_without_a_service_is_a_trouble(tmp_path: Path) -> None:
    """A path where nobody listens is said in words, and tried again."""
    source = DockerSource(
        f"unix://{tmp_path}/none.sock", SystemClock(), own_id=None, directory="/x", wanted=lambda _id, _name: False
    )
    with pytest.raises(Trouble, match=r"none\.sock") as refused:
        await source.look(Heard().take)
    assert not refused.value.lasting
