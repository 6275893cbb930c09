"""The images and manifests, played for real: hand-over between containers of other users, a kill, its verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import kubernetes_validate
import pytest
import yaml

from tests.containers import podman as images
from tests.containers.podman import ROOT, Podman

SIDECAR_URL = "http://127.0.0.1:9475"
MANIFESTS = sorted((ROOT / "integrations/kubernetes").glob("*.yaml"))


T = TypeVar("T")


def wait_for(what: str, probe: Callable[[], T | None], seconds: float = 40) -> T:
    """Ask `probe` until it gives something true; fail with what it said last."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if answer := probe():
                return answer
            last = "not yet"
        except AssertionError as exc:
            last = str(exc)
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}: {last}"
        time.sleep(0.2)


@pytest.fixture
def pod(podman: Podman) -> Iterator[Podman]:
    """The pod of integrations/kubernetes/pod.yaml, running; its volume goes with it."""
    manifest = "integrations/kubernetes/pod.yaml"
    podman("kube", "play", "--network=none", manifest)
    try:
        yield podman
    finally:
        podman("kube", "down", manifest, check=False)
        podman("volume", "rm", "-f", "oomguard", check=False)


@pytest.fixture
def compose(podman: Podman) -> Iterator[Podman]:
    """The services of integrations/compose, running on the images already built."""
    podman("tag", images.SIDECAR, "localhost/oomguard:latest")
    podman("tag", images.MODEL, "localhost/oomguard-example-model:latest")
    command = ["podman-compose", "-f", "integrations/compose/compose.yaml"]
    podman.run([*command, "up", "-d", "--no-build"])
    try:
        yield podman
    finally:
        podman.run([*command, "down", "-t", "0"], check=False)
        podman("volume", "rm", "-f", "compose_oomguard", check=False)
        (ROOT / "integrations/compose/oom").unlink(missing_ok=True)  # conmon's mark of an OOM kill, in podman's folder


def model_seen(podman: Podman, sidecar: str) -> dict[str, Any] | None:
    """Give the status of the example model once it was handed over and answers."""
    status = podman.get_json(sidecar, f"{SIDECAR_URL}/status")
    model = status["models"].get("example")
    seen = model and model["sample"] and model["sample"]["sight"] == "handover" and model["judgement"]["state"] == "ok"
    return model if seen else None


def kill_by_leak(podman: Podman, model: str, sidecar: str) -> dict[str, Any]:
    """Leak in the model until the kernel kills it; give the newest incident."""
    podman("exec", model, "python3", "-c", LEAK, check=False)
    found = wait_for("an incident", lambda: podman.get_json(sidecar, f"{SIDECAR_URL}/incidents")["incidents"])
    return next(i for i in found if i["main"])


WHO_AM_I = """
import os
lines = open("/proc/self/status").read().splitlines()
print(os.getuid(), next(line for line in lines if line.startswith("CapEff")).split()[1])
"""

LEAK = """
import urllib.request
for _ in range(40):
    try: urllib.request.urlopen("http://127.0.0.1:8000/leak?mib=8", timeout=20).read()
    except OSError: break
"""


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_manifest_is_valid_kubernetes(manifest: Path) -> None:
    """Each manifest passes the strict schema of a current Kubernetes, so no field is misspelled."""
    for document in yaml.safe_load_all(manifest.read_text()):
        assert kubernetes_validate.validate(document, "1.35", strict=True) == "1.35"


@pytest.mark.lab
@pytest.mark.timeout(600)
def test_sidecar_image_needs_no_privileges(podman: Podman) -> None:
    """The sidecar's image runs without root, capabilities and writable root, and adds at most 60 MB to its base."""
    least = ["--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    uid, capabilities = podman("run", *least, "--entrypoint=python3", images.SIDECAR, "-c", WHO_AM_I).split()
    assert (uid, int(capabilities, 16)) == ("65532", 0)
    assert "oomguard" in podman("run", *least, images.SIDECAR, "--version")
    sizes = [int(podman("inspect", "--format", "{{.Size}}", image)) for image in (images.SIDECAR, images.BASE)]
    assert sizes[0] - sizes[1] < 60_000_000


@pytest.mark.lab
def test_pod_hands_over_and_explains_a_kill(pod: Podman) -> None:
    """In a pod, a sidecar of another user sees the model's own cgroup, and names its limit when the kernel kills."""
    model = wait_for("the hand-over", lambda: model_seen(pod, "model-oomguard"))
    assert model["sample"]["levels"][0]["memory"]["max_bytes"]["value"] == 128 << 20
    assert pod.get("model-oomguard", f"{SIDECAR_URL}/livez")[0] == 200
    incident = kill_by_leak(pod, "model-server", "model-oomguard")
    assert incident["class"] == "cgroup_oom"
    assert incident["confidence"] == "high"
    assert incident["verdict_after_seconds"] <= 10  # bench.sidecar measures the figure
    wait_for("the restarted model", lambda: model_seen(pod, "model-oomguard"))
    wait_for("the end to be counted", lambda: model_seen(pod, "model-oomguard")["ends"] == {"cgroup_oom": 1})


@pytest.mark.lab
def test_compose_hands_over_and_explains_a_kill(compose: Podman) -> None:
    """On Compose, model and sidecar on their own addresses, the same holds; the health check asks the sidecar."""
    model, sidecar = "compose_model_1", "compose_sidecar_1"
    seen = wait_for("the hand-over", lambda: model_seen(compose, sidecar))
    assert seen["sample"]["levels"][0]["memory"]["max_bytes"]["value"] == 128 << 20
    compose("healthcheck", "run", model)
    incident = kill_by_leak(compose, model, sidecar)
    assert (incident["class"], incident["confidence"]) == ("cgroup_oom", "high")
