"""The Kubernetes source against a server that behaves as the API does, over TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.supervisors import kubernetes, kubernetes_api
from sidecar.supervisors.kubernetes import KubernetesSource
from sidecar.supervisors.kubernetes_cluster import Cluster, find
from sidecar.supervisors.values import Trouble
from tests.sidecar.supervisors.heard import Heard, running
from tests.sidecar.supervisors.kube import NAME, OOM, UID, KubeServer, event, pod, serving, status


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> KubeServer:
    """The API with our pod, whose server has not ended yet; a watch that ends is begun again soon."""
    monkeypatch.setattr(kubernetes, "_PAUSE_SECONDS", 0.05)
    return KubeServer(pod(5, status("server", 0)))


@pytest.fixture
async def cluster(server: KubeServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """It serves."""
    async with serving(server, tmp_path) as found:
        yield found


def source(cluster: Cluster) -> KubernetesSource:
    """Make the source as the daemon does."""
    return KubernetesSource(cluster, SystemClock(), own="oomguard", directory="/run/oomguard")


def restarts(heard: Heard) -> int | None:
    """Say how many restarts of the server were told last."""
    last = heard.last("server")
    return None if last is None else last.restart_count


async def test_an_end_comes_through_the_watch(server: KubeServer, cluster: Cluster) -> None:
    """The pod is read once, watched from that version, and events are listed only once something has ended."""
    heard = Heard()
    async with running(source(cluster).follow(heard.take)):
        await heard.until(lambda: server.watches)
        assert restarts(heard) == 0
        assert server.count("list events") == 0
        server.events = [event("Killing", "Container server failed liveness probe, will be restarted")]
        await server.change(pod(6, status("server", 1, **OOM)))
        await heard.until(lambda: restarts(heard) == 1)
    watch = next(one for one in server.asked if one.query.get("watch"))
    assert (watch.query["resourceVersion"], watch.query["fieldSelector"]) == ("5", f"metadata.name={NAME}")
    listed = next(one for one in server.asked if one.path.endswith("/events"))
    assert listed.query == {"fieldSelector": f"involvedObject.uid={UID}"}
    container = heard.last("server")
    assert container is not None
    assert container.end is not None
    assert [word.kind for word in container.end.words] == ["liveness_kill"]


async def test_a_version_that_is_gone_is_read_anew(server: KubeServer, cluster: Cluster) -> None:
    """410 in the stream leads to a new reading and a watch from there."""
    server.oldest = 6
    heard = Heard()
    async with running(source(cluster).follow(heard.take)):
        await heard.until(lambda: server.count("watch pods") >= 1)
        server.pod = pod(7, status("server", 2))
        await heard.until(lambda: server.watches)
        assert restarts(heard) == 2
    assert [one.query["resourceVersion"] for one in server.asked if one.query.get("watch")][-1] == "7"


async def test_410_as_the_answer_is_read_anew(server: KubeServer, cluster: Cluster) -> None:
    """An API that answers the watch itself with 410 is no trouble either."""
    server.refuse["watch pods"] = 410
    heard = Heard()
    async with running(source(cluster).follow(heard.take)) as task:
        await heard.until(lambda: server.count("watch pods") >= 1)
        server.refuse.clear()
        await heard.until(lambda: server.watches)
        assert not task.done()


async def test_a_watch_that_breaks_off_is_begun_anew(server: KubeServer, cluster: Cluster) -> None:
    """A server that goes down in the middle of a watch costs nothing but a new reading."""
    heard = Heard()
    async with running(source(cluster).follow(heard.take)) as task:
        await heard.until(lambda: server.watches)
        server.pod = pod(9, status("server", 4))
        server.reset()
        await heard.until(lambda: restarts(heard) == 4)
        await heard.until(lambda: server.watches)
        assert not task.done()


async def test_a_rotated_token_is_used(server: KubeServer, cluster: Cluster, tmp_path: Path) -> None:
    """The old token is refused as 401, which will pass; the one that the kubelet put there is used by the next call."""
    server.token = "second"
    heard = Heard()
    with pytest.raises(Trouble, match="401") as refused:
        await source(cluster).look(heard.take)
    assert not refused.value.lasting
    (tmp_path / "token").write_text("second")
    await source(cluster).look(heard.take)
    assert restarts(heard) == 0


async def test_a_missing_right_says_what_to_grant(server: KubeServer, cluster: Cluster) -> None:
    """403 is said as lasting, with the right and the file that grants it."""
    server.refuse["get pods"] = 403
    with pytest.raises(Trouble, match=r"no right to get pods .*supervisor-role\.yaml") as refused:
        await source(cluster).look(Heard().take)
    assert refused.value.lasting


async def test_without_the_right_to_events_the_rest_goes_on(server: KubeServer, cluster: Cluster) -> None:
    """Ends are told without the words of events, and what lacks is said with them."""
    server.refuse["list events"] = 403
    server.pod = pod(5, status("server", 1, **OOM))
    heard = Heard()
    async with running(source(cluster).follow(heard.take)):
        await heard.until(lambda: server.watches)
    assert restarts(heard) == 1
    assert heard.lacking[-1] is not None
    assert "list events" in heard.lacking[-1]


async def test_an_api_that_hangs_is_given_up(
    server: KubeServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call has a deadline."""
    monkeypatch.setattr(kubernetes_api, "_ANSWER_SECONDS", 0.5)
    server.hang = True
    with pytest.raises(Trouble, match="no answer in time"):
        await source(cluster).look(Heard().take)


async def test_nobody_listening_is_a_trouble(cluster: Cluster) -> None:
    """A refused connection is said in words."""
    nobody = Cluster(url="https://127.0.0.1:1", folder=cluster.folder, pod=NAME)
    with pytest.raises(Trouble, match="Cannot connect"):
        await source(nobody).look(Heard().take)


async def test_a_server_of_another_authority_is_not_trusted(cluster: Cluster, tmp_path: Path) -> None:
    """The token goes to the cluster's own API alone."""
    other = tmp_path / "other"
    other.mkdir()
    stranger = KubeServer(pod(5))
    async with serving(stranger, other) as elsewhere:
        mixed = Cluster(url=elsewhere.url, folder=cluster.folder, pod=NAME)
        with pytest.raises(Trouble, match="certificate"):
            await source(mixed).look(Heard().take)
    assert stranger.asked == []


async def test_another_pod_name_says_which_setting(cluster: Cluster) -> None:
    """A pod that is not there (a host name of its own) leads to the setting."""
    wrong = Cluster(url=cluster.url, folder=cluster.folder, pod="host-7")
    with pytest.raises(Trouble, match="OOMGUARD_SUPERVISED_POD"):
        await source(wrong).look(Heard().take)


async def test_an_answer_that_is_no_pod_is_a_trouble(server: KubeServer, cluster: Cluster) -> None:
    """A proxy that answers 200 with something else makes no exception of another kind."""
    server.pod = {"metadata": 7}
    with pytest.raises(Trouble, match="not understood"):
        await source(cluster).look(Heard().take)


async def test_a_missing_account_is_a_trouble(tmp_path: Path) -> None:
    """Files that vanish are named."""
    lost = Cluster(url="https://127.0.0.1:1", folder=str(tmp_path), pod=NAME)
    with pytest.raises(Trouble, match="namespace"):
        await source(lost).look(Heard().take)


def test_the_cluster_is_found_by_what_the_kubelet_gives(tmp_path: Path) -> None:
    """Host and port by the variables, v6 in brackets; none without a token or outside of a cluster."""
    given = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443", "HOSTNAME": "llm-0"}
    assert find(given, str(tmp_path), None) is None
    (tmp_path / "token").write_text("x")
    found = find(given, str(tmp_path), None)
    assert found is not None
    assert (found.url, found.pod) == ("https://[fd00::1]:6443", "llm-0")
    named = find(given, str(tmp_path), "other")
    assert named is not None
    assert named.pod == "other"
    assert find({}, str(tmp_path), None) is None


async def test_an_answer_larger_than_any_object(server: KubeServer, cluster: Cluster) -> None:
    """What no cluster stores is not read to its end: the sidecar's own limit is small."""
    server.pod = pod(5, status("server", 0), annotations={"a": "x" * (5 << 20)})
    with pytest.raises(Trouble, match="too large"):
        await source(cluster).look(Heard().take)
