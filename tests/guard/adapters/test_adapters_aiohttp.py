"""The aiohttp middleware in a real server."""

from __future__ import annotations

from pathlib import Path

from tests.guard.adapters.served import served
from tests.lab.kit.wait import until

TEMPLATE = """
import asyncio, socket, sys, guard
from pathlib import Path
from aiohttp import web
from guard.adapters.aiohttp import middleware
GATE = Path({gate!r})
guard.install()

async def fine(request):
    return web.Response(text="fine")

async def stream(request):
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"first ")
    while not GATE.exists():
        await asyncio.sleep(0.01)
    await response.write(b"second")
    return response

async def elsewhere(request):
    raise web.HTTPNotFound

async def fail(request):
    raise MemoryError("kv cache")

{app}
app = web.Application(middlewares=[middleware])
app.router.add_get("/health", fine)
for handler in (fine, stream, fail, elsewhere):
    app.router.add_get(f"/{{handler.__name__}}", handler)
web.run_app(app, sock=socket.socket(fileno=int(sys.argv[1])), print=None, shutdown_timeout=1)
"""


def test_a_server_under_pressure(tmp_path: Path) -> None:
    """A stream stays one; critical turns new requests away, not health checks nor who is in; failures are recorded."""
    with served(tmp_path, "", TEMPLATE) as server:
        with server.stream("/stream") as stream:
            assert stream.read(6) == b"first "
            server.press("critical", "/fine", 503)
            assert server.get("/fine")[1]["retry-after"] == "10"
            assert server.get("/health")[::2] == (200, b"fine")
            server.gate.touch()
            assert stream.read() == b"second"
        server.press("none", "/fine", 200)
        assert server.get("/fail")[0] == 500
        until(lambda: server.boxes()[0].failures, 30, "the failure in the box")
        assert [one.kind for one in server.boxes()[0].failures] == ["memory_error"]
        before = server.beats()["requests"]
        assert before >= 2
        assert server.get("/elsewhere")[0] == 404
        assert server.beats()["requests"] == before + 1, "an answer that is raised is one"
