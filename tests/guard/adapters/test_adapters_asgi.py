"""The ASGI middleware in real servers: streams, shedding, health checks, failures, WebSockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from guard.adapters.asgi import GuardMiddleware
from tests.guard.adapters.served import Served, served
from tests.guard.hosts import run_host
from tests.lab.kit.wait import until

STARLETTE = """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

async def stream(request): return StreamingResponse(parts(), media_type="text/plain")
async def fine(request): return PlainTextResponse("fine")
async def fail(request): raise MemoryError("kv cache")
app = Starlette(routes=[Route("/stream", stream), Route("/fine", fine), Route("/fail", fail), Route("/health", fine)])
"""
FASTAPI = """
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, StreamingResponse

app = FastAPI()
@app.get("/stream")
async def stream(): return StreamingResponse(parts(), media_type="text/plain")
@app.get("/fine")
@app.get("/health")
async def fine(): return PlainTextResponse("fine")
@app.get("/fail")
def fail(): raise MemoryError("kv cache")
"""
ADDED = """
from guard.adapters.asgi import GuardMiddleware
app.add_middleware(GuardMiddleware)
"""
BY_NAME = """
import importlib, inspect  # as vLLM does it with --middleware
module, _, name = "guard.adapters.asgi.GuardMiddleware".rpartition(".")
imported = getattr(importlib.import_module(module), name)
assert inspect.isclass(imported)
app.add_middleware(imported)
"""
PLAIN = """
from guard.adapters.asgi import GuardMiddleware

async def plain(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/fail":
        raise MemoryError("kv cache")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/stream":
        async for part in parts():
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    else:
        await send({"type": "http.response.body", "body": b"fine"})
app = GuardMiddleware(plain)
"""
APPS = {
    "starlette": STARLETTE + ADDED,
    "fastapi": FASTAPI + ADDED,
    "fastapi, by name": FASTAPI + BY_NAME,
    "plain": PLAIN,
}


@pytest.mark.parametrize("app", APPS)
def test_a_server_under_pressure(app: str, tmp_path: Path) -> None:
    """A stream stays one; critical turns new requests away, not health checks nor who is in; then all is as before."""
    with served(tmp_path, APPS[app]) as server:
        assert server.get("/fine")[::2] == (200, b"fine")
        with server.stream("/stream") as stream:
            assert stream.read(6) == b"first ", "the first part comes before the second one is made"
            server.press("critical", "/fine", 503)
            status, headers, body = server.get("/fine")
            assert (status, headers["retry-after"], body) == (503, "10", b"short of memory, try again later\n")
            assert server.get("/health")[::2] == (200, b"fine")
            server.gate.touch()
            assert stream.read() == b"second"
        server.press("warning", "/fine", 200)
        server.press("none", "/fine", 200)
        _check_failure(server)


def _check_failure(server: Served) -> None:
    """A memory failure in a handler is the framework's to answer, and is recorded as survived."""
    assert server.get("/fail")[0] == 500
    until(lambda: server.boxes()[0].failures, 30, "the failure in the box")
    [failure] = server.boxes()[0].failures
    assert (failure.kind, failure.message, failure.fatal) == ("memory_error", "kv cache", False)
    beats = server.beats()
    assert beats["requests"] >= 4
    assert beats["responses"] >= beats["requests"] + 1, "a stream has several parts"


def test_health_checks_are_no_progress(tmp_path: Path) -> None:
    """Probes that are answered count for nothing: a server that does nothing else must look idle."""
    with served(tmp_path, APPS["plain"]) as server:
        for path in ("/health", "/health/live", "/v2/health/ready", "/metrics", "/ping"):
            assert server.get(path)[0] == 200
        assert not {"requests", "responses"} & set(server.beats())


Message = MutableMapping[str, Any]


class Turned(GuardMiddleware):
    """A middleware whose admission is decided by the test, without a guard in the test's own process."""

    def __init__(self) -> None:
        self._retry_after = b"7"


async def _refuse(scope: Message) -> list[Message]:
    """Let a connection be turned away; what was sent."""
    sent: list[Message] = []
    waiting: list[Message] = [{"type": "websocket.connect"}]

    async def receive() -> Message:
        return waiting.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    turn_away: Callable[..., Awaitable[None]] = Turned()._turn_away
    await turn_away(scope, receive, send)
    return sent


async def test_a_websocket_is_refused() -> None:
    """With the server's extension it gets the same 503, else close code 1013, after its connect was received."""
    assert [(one["type"], one.get("code")) for one in await _refuse({"type": "websocket"})] == [
        ("websocket.close", 1013)
    ]
    start, body = await _refuse({"type": "websocket", "extensions": {"websocket.http.response": {}}})
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 503)
    assert (b"retry-after", b"7") in start["headers"]
    assert body["type"] == "websocket.http.response.body"


@pytest.mark.parametrize(
    ("exempt", "passes", "counts"),
    [
        (("/",), ("/",), ("/generate", "/a/b")),
        ("/status", ("/status", "/status/", "/status/deep"), ("/", "/s", "/statuses", "")),
        (("/health", "/-/"), ("/health/", "/-/live", "/-"), ("/", "/healthy", "/-x")),
        ((), (), ("/", "/health")),
    ],
    ids=["the-root-alone", "one-without-a-tuple", "folders", "none"],
)
def test_what_is_exempt(exempt: Any, passes: tuple[str, ...], counts: tuple[str, ...], tmp_path: Path) -> None:  # noqa: ANN401 - as a server passes it
    """A path and what lies below it; "/" is the one page, and a lone string is one path, not its letters."""
    ended = run_host(
        f"""
import asyncio, guard
from guard.adapters.asgi import GuardMiddleware
async def app(scope, receive, send): pass
middleware = GuardMiddleware(app, exempt={exempt!r})
def counted(path):
    before = sum(beat.count for beat in beats() if beat.name == "requests")
    asyncio.run(middleware({{"type": "http", "path": path}}, None, None))
    return sum(beat.count for beat in beats() if beat.name == "requests") > before
def beats():
    from guard.box.reader import parse_box
    with open(guard.status().box, "rb") as file:
        return parse_box(file.read(), "box").value.beats
print([counted(path) for path in {(*passes, *counts)!r}])
""",
        tmp_path,
    )
    assert (ended.err, ended.out) == ("", f"{[False] * len(passes) + [True] * len(counts)}\n")
