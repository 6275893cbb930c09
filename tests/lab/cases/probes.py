"""Ends by a liveness probe: the server hangs, /livez says so, and a supervisor with the kubelet's rules stops it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from tests.lab.cases.stage import Document, Model, Sidecar, Stage
from tests.lab.cases.verdicts import ended
from tests.lab.kit.probes import Container, Probe, passes, supervise
from tests.lab.kit.wait import PACE, until

_PERIOD: Final = 0.3 * PACE


@dataclass(frozen=True, slots=True)
class _Hung:
    """One way to be stopped: what SIGTERM does to the server, what the supervisor sends, and how that ends."""

    name: str
    term: str
    first: signal.Signals
    runner_status: int


HUNG: Final = (
    _Hung("hung-143", "", signal.SIGTERM, -signal.SIGTERM),
    _Hung("hung-0", "0", signal.SIGTERM, 0),
    _Hung("hung-137", "ignore", signal.SIGTERM, -signal.SIGKILL),
    _Hung("hung-abrt", "", signal.SIGABRT, -signal.SIGABRT),
)


@contextmanager
def probing() -> Iterator[tuple[Stage, dict[str, int]]]:
    """Start a sidecar that probes a port for each of `HUNG`."""
    with ExitStack() as held:
        sockets = {one.name: held.enter_context(closing(socket.create_server(("127.0.0.1", 0)))) for one in HUNG}
        ports = {name: free.getsockname()[1] for name, free in sockets.items()}
    probes = ",".join(f"{name}=http://127.0.0.1:{port}/" for name, port in ports.items())
    rules = {"OOMGUARD_HEALTH_PERIOD_SECONDS": str(_PERIOD), "OOMGUARD_HEALTH_TIMEOUT_SECONDS": str(_PERIOD)}
    with Stage(Sidecar(env={"OOMGUARD_PROBE": probes, **rules})) as stage:
        yield stage, ports
        assert not stage.complaints()


def case_failed_liveness_probe() -> list[Document]:
    """Four servers hang at once and are stopped, with exit status 143, 0, 137 and 134: health_check for each."""
    with probing() as (stage, ports), ExitStack() as models:
        hung = [(one, models.enter_context(_hanging(stage, one, ports[one.name]))) for one in HUNG]
        with ThreadPoolExecutor(len(hung)) as supervisors:
            for done in [supervisors.submit(_supervise, stage, one, model) for one, model in hung]:
                done.result()
        for one, model in hung:
            incident = ended(stage, model, "health_check")
            assert incident["fields"]["liveness_failures"] >= 3, incident
            assert model.wait() == one.runner_status, one
        return stage.told


@contextmanager
def _hanging(stage: Stage, one: _Hung, port: int) -> Iterator[Model]:
    """Run a server until the sidecar finds it well, then have it hang."""
    term = f"term={one.term}" if one.term else ""
    with stage.model(one.name, f"serve port={port} {term}") as model:
        stage.wait_seen(model)
        until(
            lambda: stage.get("/status")["models"][one.name]["judgement"]["state"] == "ok", 30, f"{one.name} to serve"
        )
        assert passes(Probe(port=stage.port, path=f"/livez/{one.name}"))
        with (
            suppress(OSError, http.client.HTTPException),
            closing(http.client.HTTPConnection("127.0.0.1", port, timeout=0.2 * PACE)) as connection,
        ):
            connection.request("GET", "/hang")
            connection.getresponse()
        yield model


def _state(stage: Stage, name: str) -> str:
    return str(stage.get("/status")["models"][name]["judgement"]["state"])


def _supervise(stage: Stage, one: _Hung, model: Model) -> None:
    probe = Probe(port=stage.port, path=f"/livez/{one.name}", period_seconds=_PERIOD, timeout_seconds=PACE)
    main = model.main_pid()
    container = Container(
        pid=model.runner.pid,
        ended=lambda: model.runner.poll() is not None,
        kill_all=lambda: os.kill(main, signal.SIGKILL),
    )
    supervise(probe, container, one.first)
