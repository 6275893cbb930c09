"""A real daemon whose Kubernetes API is played beside it: verdicts follow its words, and nothing waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.daemons import Daemon, model
from tests.sidecar.supervisors.kube import ERROR, NAME, KubeServer, event, pod, serving, status


def at(wall_s: float) -> str:
    """Write a time as the API does."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def until(true: Callable[[], Any], what: str, seconds: float = 40) -> Any:  # noqa: ANN401 - JSON
    """Poll beside the server's loop, which must not stand still."""
    deadline = time.monotonic() + seconds
    while not (found := await asyncio.to_thread(true)):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        await asyncio.sleep(0.1)
    return found


@pytest.fixture
def server() -> KubeServer:
    """The API with our pod, whose server has not ended yet."""
    return KubeServer(pod(5, status("server", 0)))


@contextlib.asynccontextmanager
async def sidecar(server: KubeServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Daemon]:
    """A daemon in this cluster; on a host there is no mount that tells which container it is, so the name is set."""
    account, shared = folder / "account", folder / "shared"
    account.mkdir()
    shared.mkdir()
    async with serving(server, account) as cluster:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", cluster.url.rpartition(":")[2])
        flags = ["--supervisor", "kubernetes", "--supervised-service-account", str(account)]
        flags += ["--supervised-pod", NAME, "--supervised-names", "llm=server"]
        with contextlib.ExitStack() as stack:
            yield await asyncio.to_thread(stack.enter_context, Daemon(shared, folder / "log", *flags))


def supervised(daemon: Daemon) -> dict[str, Any] | None:
    """Give what the API says of the model's container."""
    view = daemon.get("/status")["models"].get("llm")
    return view["supervised"][0] if view and view["supervised"] else None


def degraded(daemon: Daemon) -> list[str]:
    """Give what does not work, as /status says."""
    return [one for one in daemon.get("/status")["sidecar"]["degraded"] if one.startswith("Kubernetes")]


async def test_a_liveness_kill_is_told_by_the_kubelet(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL from outside is all that is seen; the event names the probe, and the same incident is judged anew."""
    async with sidecar(server, tmp_path, monkeypatch) as daemon:
        with model(tmp_path / "shared", "llm", "sys.stdin.readline()") as process:
            await until(lambda: supervised(daemon), "the container to be known")
            began = time.time()
            process.kill()
        first = await until(lambda: daemon.get("/incidents")["incidents"], "the first verdict")
        assert first[0]["class"] in {"external_kill", "unknown"}
        server.events = [event("Killing", "Container server failed liveness probe, will be restarted", at(began - 1))]
        ended = {**ERROR, "startedAt": at(began - 5), "finishedAt": at(began + 1)}
        await server.change(pod(6, status("server", 1, **ended)))

        def refined() -> dict[str, Any] | None:
            found: list[dict[str, Any]] = daemon.get("/incidents")["incidents"]
            return found[0] if found[0]["class"] == "health_check" else None

        incident = await until(refined, "the verdict to be refined")
        assert incident["id"] == first[0]["id"]
        assert (supervised(daemon) or {})["restart_count"] == 1
        assert 'oomguard_container_restarts{model="llm",supervisor="kubernetes"} 1.0' in daemon.text("/metrics")
        assert degraded(daemon) == []


async def test_a_deletion_is_in_the_first_verdict(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API says that the pod is to go before anything ends: SIGTERM is a deletion at once, with no refinement."""
    async with sidecar(server, tmp_path, monkeypatch) as daemon:
        with model(tmp_path / "shared", "llm", "sys.stdin.readline()") as process:
            await until(lambda: supervised(daemon), "the container to be known")
            times = {"deletionTimestamp": at(time.time() + 29), "deletionGracePeriodSeconds": 30}
            runs = {"running": {"startedAt": at(time.time() - 60)}}
            await server.change(pod(6, {**status("server", 0), "state": runs}, **times))
            said = await until(
                lambda: [one for one in daemon.events() if one["event"] == "supervisor_stopping"], "the wish to delete"
            )
            assert "grace of 30 s" in said[0]["text"]
            process.terminate()
            incident = (await until(lambda: daemon.get("/incidents")["incidents"], "the verdict"))[0]
        assert incident["class"] == "deletion"


async def test_a_missing_right_is_shown_and_said_once(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the Role the sidecar works as before; /status names the right, the log has it once."""
    server.refuse["get pods"] = 403
    async with sidecar(server, tmp_path, monkeypatch) as daemon:
        words = await until(lambda: degraded(daemon), "the refusal")
        assert "supervisor-role.yaml" in words[0]
        assert daemon.get("/sidecar/readyz")["passed"]
        said = [one for one in daemon.events() if one["event"] == "degraded" and "Kubernetes" in one["text"]]
        assert len(said) == 1


async def test_an_api_that_hangs_holds_up_nothing(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ticks go on, pages answer and the first verdict comes as ever while the API gives no answer at all."""
    server.hang = True
    async with sidecar(server, tmp_path, monkeypatch) as daemon:
        await until(lambda: server.asked, "the API to be asked")
        with model(tmp_path / "shared", "llm", "sys.stdin.readline()") as process:
            await until(lambda: "llm" in daemon.get("/status")["models"], "the hand-over")
            process.kill()
        found = await until(lambda: daemon.get("/incidents")["incidents"], "the verdict")
        assert found[0]["verdict_after_seconds"] < 9  # the API would be given up after ten
        assert daemon.get("/sidecar/livez")["passed"]


def test_a_supervisor_that_was_set_and_is_not_here_is_named(tmp_path: Path) -> None:
    """The daemon starts, and /status and the log say what is missing and what to do."""
    (tmp_path / "shared").mkdir()
    flags = ("--supervisor", "kubernetes", "--supervised-service-account", str(tmp_path / "none"))
    with Daemon(tmp_path / "shared", tmp_path / "log", *flags) as daemon:
        assert "supervisor-role.yaml" in degraded(daemon)[0]
        assert [one["event"] for one in daemon.events()].count("degraded") >= 1
