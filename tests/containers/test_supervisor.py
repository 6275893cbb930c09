"""A real supervisor that restarts on failure: the thrashing model is left alone, the hung one is restarted.

podman kube play makes a health check with on-failure=restart of a liveness probe. Without systemd nobody runs it on
time, so the test does, as a timer would.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.demo.stage import drop_from_page_cache
from tests.containers.podman import ROOT, Podman
from tests.containers.test_containers import SIDECAR_URL, wait_for
from tests.lab.kit.loads import make_file
from tests.lab.kit.wait import until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]

SERVER, SIDECAR = "model-server", "model-oomguard"
MODEL_URL = "http://127.0.0.1:8000"
THRASH_SECONDS = 30.0
WEIGHTS_MIB = 250


def manifest(weights: Path) -> dict[str, Any]:
    """Give pod.yaml with the bench's server in it, a small limit, quick probes, and the liveness probe as a command."""
    pod: dict[str, Any] = yaml.safe_load((ROOT / "integrations/kubernetes/pod.yaml").read_text())
    server, sidecar = pod["spec"]["containers"]
    server["args"] = ["python3", "/bench/health/server.py", "--port", "8000", "--weights", f"/weights/{weights.name}"]
    server["resources"] = {"limits": {"memory": "72Mi"}}
    server["livenessProbe"] = {
        "exec": {"command": ["oomguard", "check"]},
        "periodSeconds": 2,
        "timeoutSeconds": 30,
        "failureThreshold": 3,
    }
    del server["startupProbe"], server["readinessProbe"]
    for name, folder in (("bench", ROOT / "bench"), ("weights", weights.parent)):
        server["volumeMounts"].append({"name": name, "mountPath": f"/{name}", "readOnly": True})
        pod["spec"]["volumes"].append({"name": name, "hostPath": {"path": str(folder)}})
    sidecar["env"].append({"name": "OOMGUARD_HEALTH_PERIOD_SECONDS", "value": "2"})
    return pod


@pytest.fixture
def pod(podman: Podman) -> Iterator[Podman]:
    """The pod, running and seen; its volume goes with it."""
    weights = ROOT / "build" / "supervised" / "weights"
    weights.parent.mkdir(parents=True, exist_ok=True)
    make_file(str(weights), WEIGHTS_MIB)
    weights.chmod(0o644)
    drop_from_page_cache(weights)  # what others have touched is not charged to the container
    file = ROOT / "build" / "supervised.yaml"
    file.write_text(yaml.safe_dump(manifest(weights)))
    podman("kube", "play", "--network=none", str(file))
    try:
        wait_for("the model to be well", lambda: state(podman) == "ok")
        yield podman
    finally:
        podman("kube", "down", str(file), check=False)
        podman("volume", "rm", "-f", "oomguard", check=False)
        weights.unlink()


def state(podman: Podman) -> str | None:
    """Give what the sidecar says of the model, None while there is none."""
    views = list(podman.get_json(SIDECAR, f"{SIDECAR_URL}/status")["models"].values())
    return str(views[0]["judgement"]["state"]) if views and views[0]["sample"] else None


def started_at(podman: Podman) -> str:
    """Tell one life of the server's container from the next."""
    return podman("inspect", "--format", "{{.State.StartedAt}}", SERVER).strip()


def check(podman: Podman) -> None:
    """Run the health check, as a timer would; podman acts on its result."""
    podman("healthcheck", "run", SERVER, check=False)


def test_the_thrashing_model_is_left_alone(pod: Podman) -> None:
    """Mapped weights far above the limit, read by eight threads and the serving loop: no restart."""
    before = started_at(pod)
    pod.get(SIDECAR, f"{MODEL_URL}/fault/thrash")
    until(lambda: state(pod) in {"reclaiming", "thrashing"}, 30, "the thrash to be seen")
    began = time.monotonic()
    while time.monotonic() - began < THRASH_SECONDS:
        check(pod)
    assert started_at(pod) == before, pod("logs", "--tail", "20", SIDECAR)


def test_the_hung_model_is_restarted(pod: Podman) -> None:
    """A deadlock in the serving loop: restarted within the plain rule's time and the supervisor's own threshold."""
    before = started_at(pod)
    pod.get(SIDECAR, f"{MODEL_URL}/fault/deadlock")

    def restarted() -> bool:
        check(pod)
        return started_at(pod) != before

    until(restarted, 40, "the supervisor to restart the model", pause_seconds=0.5)
    wait_for("the next life to be well", lambda: state(pod) == "ok")
