"""A supervisor followed: its words reach the model they are about, and its silence is said once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.supervise import Degraded
from sidecar.supervisors import asking
from sidecar.supervisors.asking import Asking, Models
from sidecar.supervisors.kubernetes import KubernetesSource
from sidecar.supervisors.kubernetes_cluster import Cluster
from sidecar.supervisors.values import Container, Subject
from sidecar.verdict.supervisor_values import SupervisorEnd
from tests.sidecar.supervisors.heard import Heard, running
from tests.sidecar.supervisors.kube import OOM, KubeServer, event, pod, serving, status


@dataclass
class Daemon:
    """What the daemon does with words: one model, which has had an end or not."""

    has_ended: bool = True
    restarts: list[int | None] = field(default_factory=list)
    ends: list[SupervisorEnd] = field(default_factory=list)
    stopping: list[SupervisorEnd] = field(default_factory=list)
    changes: list[str | None] = field(default_factory=list)

    def told(self, model: str, container: Container, end: SupervisorEnd | None) -> bool:
        """Hear of a container."""
        assert model == "llm"
        self.restarts.append(container.restart_count)
        if end is not None:
            self.ends.append(end)
        return self.has_ended

    def changed(self, _subject: str, words: str | None) -> None:
        """Hear of what does not work."""
        self.changes.append(words)

    def asking(self, cluster: Cluster) -> Asking:
        """Ask the API about it."""
        clock = SystemClock()
        source = KubernetesSource(cluster, clock, own="oomguard", directory="/run/oomguard")
        subjects = (Subject(model="llm", groups=("/",), alive=True),)
        models = Models(
            names={}, subjects=lambda: subjects, told=self.told, stopping=lambda _model, why: self.stopping.append(why)
        )
        return Asking(source, clock, Degraded(self.changed), models)


@pytest.fixture
def server() -> KubeServer:
    """The API with our pod, whose server was killed once."""
    return KubeServer(pod(5, status("server", 1, **OOM)))


@pytest.fixture
async def cluster(server: KubeServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """It serves."""
    async with serving(server, tmp_path) as found:
        yield found


async def wait(true: Callable[[], object]) -> None:
    """Wait until something is so."""
    await Heard().until(true)


async def test_an_end_is_told_once_and_again_when_more_is_said_of_it(server: KubeServer, cluster: Cluster) -> None:
    """The same words a second time are not passed on; an event that comes later is."""
    daemon = Daemon()
    async with running(daemon.asking(cluster).follow()):
        await wait(lambda: server.watches)
        await server.change(pod(6, status("server", 1, **OOM)))
        await wait(lambda: len(daemon.restarts) == 2)
        assert len(daemon.ends) == 1
        server.events = [event("Killing", "Container server failed liveness probe, will be restarted")]
        await server.change(pod(7, status("server", 1, **OOM)))
        await wait(lambda: len(daemon.ends) == 2)
    assert [len(end.words) for end in daemon.ends] == [0, 1]


async def test_a_wish_to_delete_is_told_once(server: KubeServer, cluster: Cluster) -> None:
    """While the container runs on; a later change of the pod does not tell it again."""
    times = {"deletionTimestamp": "2026-11-30T10:01:00Z", "deletionGracePeriodSeconds": 30}
    daemon = Daemon()
    async with running(daemon.asking(cluster).follow()):
        await wait(lambda: server.watches)
        assert daemon.stopping == []
        await server.change(pod(6, status("server", 1, **OOM), **times))
        await wait(lambda: daemon.stopping)
        await server.change(pod(7, status("server", 1, **OOM), **times))
        await wait(lambda: len(daemon.restarts) == 3)
    assert len(daemon.stopping) == 1


async def test_an_end_that_nobody_knows_yet_is_told_again(server: KubeServer, cluster: Cluster) -> None:
    """The supervisor may know of an end before we do: its word is not lost."""
    daemon = Daemon(has_ended=False)
    async with running(daemon.asking(cluster).follow()):
        await wait(lambda: len(daemon.ends) == 1 and server.watches)
        daemon.has_ended = True
        await server.change(pod(6, status("server", 1, **OOM)))
        await wait(lambda: len(daemon.ends) == 2)


async def test_behind_an_end_it_is_asked_again(
    server: KubeServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that says nothing, as after a network fault, does not keep the end from being told."""
    monkeypatch.setattr(asking, "LOOKS_SECONDS", (0.05, 0.05))
    daemon = Daemon()
    asked = daemon.asking(cluster)
    async with running(asked.look_again()):
        asked.wake()
        await wait(lambda: server.count("get pods") >= 2)
        await wait(lambda: daemon.ends)


async def test_what_goes_wrong_behind_an_end_is_said(
    server: KubeServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor that is asked behind ends alone has no other moment to say what is missing."""
    monkeypatch.setattr(asking, "LOOKS_SECONDS", (0.05, 0.05))
    server.refuse["get pods"] = 403
    daemon = Daemon()
    asked = daemon.asking(cluster)
    async with running(asked.look_again()):
        asked.wake()
        await wait(lambda: server.count("get pods") >= 2)
        await wait(lambda: daemon.changes)
    assert len(daemon.changes) == 1


async def test_a_missing_right_is_said_once_and_gone_when_granted(
    server: KubeServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What to grant is said at the first refusal and not again; the grant is noticed and said."""
    monkeypatch.setattr(asking, "REFUSED_PAUSE_SECONDS", 0.05)
    server.refuse["get pods"] = 403
    daemon = Daemon()
    async with running(daemon.asking(cluster).follow()):
        await wait(lambda: server.count("get pods") >= 3)
        assert len(daemon.changes) == 1
        assert "supervisor-role.yaml" in (daemon.changes[0] or "")
        server.refuse.clear()
        await wait(lambda: daemon.ends)
    assert daemon.changes[1:] == [None]


async def test_what_lacks_is_said_while_the_rest_works(server: KubeServer, cluster: Cluster) -> None:
    """Without the right to events the end is told, and what to grant is said."""
    server.refuse["list events"] = 403
    daemon = Daemon()
    async with running(daemon.asking(cluster).follow()):
        await wait(lambda: daemon.ends)
    assert len(daemon.changes) == 1
    assert "list events" in (daemon.changes[0] or "")


async def test_an_api_that_is_away_comes_back(
    server: KubeServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused tokens and broken answers are tried again with growing pauses, and forgotten as soon as it answers."""
    monkeypatch.setattr(asking, "FIRST_PAUSE_SECONDS", 0.02)
    server.token = "later"
    daemon = Daemon()
    async with running(daemon.asking(cluster).follow()) as task:
        await wait(lambda: server.count("get pods") >= 3)
        server.token = "first"
        await wait(lambda: daemon.ends)
        assert not task.done()
    assert len(daemon.changes) == 2
    assert daemon.changes[1] is None
