"""LitServe: its API server takes the middleware; the model runs in a worker process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guard.adapters.served import served

TEMPLATE = """
import socket, sys

import litserve

from guard.adapters.asgi import GuardMiddleware

class Api(litserve.LitAPI):
    def setup(self, device): pass
    def decode_request(self, request): return request["x"]
    def predict(self, x): return x
    def encode_response(self, output): return {{"y": output}}

if __name__ == "__main__":
    listener = socket.socket(fileno=int(sys.argv[1]))
    port = listener.getsockname()[1]
    listener.close()  # LitServe makes its own
    server = litserve.LitServer(Api(), accelerator="cpu", middlewares=[GuardMiddleware])
    server.run(host="127.0.0.1", port=port, num_api_servers=1, generate_client_file=False, log_level="critical")
"""


@pytest.mark.slow
def test_a_server_under_pressure(tmp_path: Path) -> None:
    """Critical turns requests away, health checks pass; then all is as before."""
    with served(tmp_path, "", TEMPLATE) as server:
        assert server.get("/info")[0] == 200
        server.press("critical", "/info", 503)
        assert server.get("/info")[1]["retry-after"] == "10"
        assert server.get("/health")[0] == 200
        server.press("none", "/info", 200)
