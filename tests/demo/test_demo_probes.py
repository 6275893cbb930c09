"""The demo's plain probe and its question to the sidecar, against real sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.demo.probes import TIMEOUT_SECONDS, plain_probe, sidecar_probe


@contextmanager
def server(status: int, body: str) -> Iterator[int]:
    """A server that always gives this answer; the value is its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening.server_address[1]
        listening.shutdown()
        thread.join()


def livez(*, passed: bool, reason: str) -> str:
    """What the sidecar's /livez/demo answers as JSON."""
    return json.dumps({"models": {"demo": {"passed": passed, "reason": reason}}})


def test_a_server_that_answers_passes() -> None:
    """An answer of 200 passes, and the text says how long it took."""
    with server(200, "ok") as port:
        said = plain_probe(port)
    assert said.ok
    assert said.text.startswith("ok 0.")


def test_an_error_fails() -> None:
    """An answer of 503 is a failure with its status."""
    with server(503, "no") as port:
        assert plain_probe(port).text == "FAILED 503"


def test_silence_fails_after_the_timeout() -> None:
    """A server that accepts and never answers fails after the probe's timeout, as with the kubelet."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        said = plain_probe(listening.getsockname()[1])
    assert (said.ok, said.text) == (False, "FAILED timed out")
    assert TIMEOUT_SECONDS == 1.0


def test_nobody_there_fails() -> None:
    """A port that nobody listens on is a refused connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert plain_probe(port).text == "FAILED refused"


def test_the_sidecars_reason_is_shown() -> None:
    """What the sidecar says about the model is its own sentence, and its status decides."""
    with server(200, livez(passed=True, reason="reclaiming; full stall 30 %")) as port:
        said = sidecar_probe(port, "demo")
    assert (said.ok, said.text) == (True, "reclaiming; full stall 30 %")
    with server(503, livez(passed=False, reason="hung")) as port:
        said = sidecar_probe(port, "demo")
    assert (said.ok, said.text) == (False, "hung")


def test_a_sidecar_that_does_not_answer_is_a_failure() -> None:
    """No sidecar, or an answer in another shape, counts against the sidecar."""
    with server(200, "not JSON") as port:
        assert not sidecar_probe(port, "demo").ok
    assert sidecar_probe(port, "demo").text == "no answer: refused"
