"""Ray: the setup hook in a real worker, and the Serve health check against real answers."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from guard.adapters.ray import ServeHealth, UnhealthyError
from tests.guard.hosts import boxes, environment, run_command

JOB = """
import json, os, sys
import ray

ray.init(
    num_cpus=1,
    include_dashboard=False,
    log_to_driver=False,
    configure_logging=False,
    runtime_env={"worker_process_setup_hook": "guard.adapters.ray.setup"},
)

@ray.remote
def work():
    import guard
    guard.beat("tasks")
    return os.getpid(), guard.status().active, guard.status().hooks["excepthook"]

print(json.dumps(ray.get(work.remote(), timeout=40)))
ray.shutdown()
"""


@pytest.mark.slow
def test_every_worker_has_the_guard(tmp_path: Path) -> None:
    """The hook installs the guard in the worker that runs a task; its box holds what the task did."""
    env = environment(tmp_path, {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"})
    ended = run_command([sys.executable, "-W", "ignore", "-c", JOB], env, cwd=tmp_path)
    assert ended.returncode == 0, ended.err
    pid, active, hook = json.loads(ended.out.splitlines()[-1])
    assert (active, hook) == (True, "installed")
    [worker] = [box for box in boxes(tmp_path) if box.life.pid == pid]
    assert {beat.name: beat.count for beat in worker.beats} == {"tasks": 1}


@contextmanager
def _answering(status: int, text: str) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/livez"
        server.shutdown()
        thread.join()


def _replica(url: str) -> ServeHealth:
    replica = ServeHealth()
    replica.oomguard_livez = url
    return replica


async def test_serve_health_follows_the_sidecar() -> None:
    """Unhealthy, with the reason, where the sidecar says 503; healthy at every other answer."""
    with _answering(200, "ok") as url:
        await _replica(url).check_health()
    with _answering(404, "no such model") as url:
        await _replica(url).check_health()
    with _answering(503, "model llm: hung") as url, pytest.raises(UnhealthyError, match="model llm: hung"):
        await _replica(url).check_health()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/livez", "nonsense", ""])
async def test_a_sidecar_that_does_not_answer_kills_no_replica(url: str) -> None:
    """Ignorance is no reason."""
    await _replica(url).check_health()
