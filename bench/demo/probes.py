"""Two opinions on one server, asked at the same moment: a plain probe's, as the kubelet would, and the sidecar's."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

PERIOD_SECONDS = 1.0
TIMEOUT_SECONDS = 1.0
FAILURE_THRESHOLD = 3

_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer. `ended_s` is CLOCK_MONOTONIC."""

    ok: bool
    text: str
    ended_s: float


@dataclass(frozen=True, slots=True)
class Round:
    """Both answers of one second."""

    plain: Said
    sidecar: Said


def request(port: int, method: str, path: str, timeout: float) -> tuple[int, bytes]:
    """Make one request on a connection of its own, like a probe; raises OSError or HTTPException."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, headers={"Accept": "application/json", "Connection": "close"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def document(port: int, path: str) -> Any:  # noqa: ANN401 - JSON
    """Get a JSON document."""
    status, body = request(port, "GET", path, 5.0)
    if status != _OK:
        raise OSError(f"{path} answered {status}")
    return json.loads(body)


def plain_probe(port: int) -> Said:
    """Ask the server's own health page, one second long."""
    began = time.monotonic()
    try:
        status, _ = request(port, "GET", "/health", TIMEOUT_SECONDS)
    except TimeoutError:
        return Said(ok=False, text="FAILED timed out", ended_s=time.monotonic())
    except (OSError, http.client.HTTPException) as error:
        return Said(ok=False, text=f"FAILED {_short(error)}", ended_s=time.monotonic())
    ended = time.monotonic()
    text = f"ok {ended - began:.2f} s" if status == _OK else f"FAILED {status}"
    return Said(ok=status == _OK, text=text, ended_s=ended)


def sidecar_probe(port: int, model: str) -> Said:
    """Ask the sidecar about the model, with the same timeout."""
    try:
        status, body = request(port, "GET", f"/livez/{model}", TIMEOUT_SECONDS)
        said = json.loads(body)["models"][model]
    except (OSError, http.client.HTTPException, ValueError, LookupError) as error:
        return Said(ok=False, text=f"no answer: {_short(error)}", ended_s=time.monotonic())
    state_and_why = "; ".join(said["reason"].split("; ")[:2])
    return Said(ok=status == _OK, text=state_and_why, ended_s=time.monotonic())


def _short(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    return type(error).__name__


@dataclass(frozen=True, slots=True)
class Opinions:
    """Whom to ask."""

    server_port: int
    sidecar_port: int
    model: str

    def rounds(self) -> Iterator[Round]:
        """Ask both, at once, every second, for ever."""
        with ThreadPoolExecutor(2) as pool:
            while True:
                began = time.monotonic()
                plain = pool.submit(plain_probe, self.server_port)
                sidecar = pool.submit(sidecar_probe, self.sidecar_port, self.model)
                yield Round(plain.result(), sidecar.result())
                time.sleep(max(0.0, began + PERIOD_SECONDS - time.monotonic()))
