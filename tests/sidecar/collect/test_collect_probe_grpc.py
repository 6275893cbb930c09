"""The gRPC probe against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from sidecar.collect.probe_grpc import check
from sidecar.sample import ProbeOutcome
from sidecar.settings import ProbeKind, ProbeTarget

SERVING, NOT_SERVING, UNKNOWN = b"\x08\x01", b"\x08\x02", b""


@asynccontextmanager
async def health(answers: dict[bytes, bytes]) -> AsyncIterator[str]:
    """Serve grpc.health.v1: an answer for each request; others are NOT_FOUND."""

    async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        if request not in answers:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return answers[request]

    handler = grpc.unary_unary_rpc_method_handler(answer, request_deserializer=bytes, response_serializer=bytes)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("message", "outcome"),
    [(SERVING, ProbeOutcome.OK), (NOT_SERVING, ProbeOutcome.FAILED), (UNKNOWN, ProbeOutcome.FAILED)],
)
async def test_the_serving_status_decides(message: bytes, outcome: ProbeOutcome) -> None:
    """SERVING alone is success; proto3 leaves out the 0 of UNKNOWN."""
    async with health({b"": message}) as address:
        assert (await asyncio.wait_for(check(address), 30))[0] is outcome


async def test_a_named_service_is_asked_for() -> None:
    """The name after the slash is what is asked; a server that does not know it fails the probe in words."""
    async with health({b"\x0a\x03llm": SERVING}) as address:
        assert (await asyncio.wait_for(check(f"{address}/llm"), 30))[0] is ProbeOutcome.OK
        outcome, detail = await asyncio.wait_for(check(address), 30)
    assert outcome is ProbeOutcome.FAILED
    assert "NOT_FOUND" in detail


async def test_nobody_listens() -> None:
    """A refused connection is told as such."""
    async with health({}) as address:
        pass
    with pytest.raises(ConnectionRefusedError):
        await asyncio.wait_for(check(address), 30)


async def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is for the way out of the pod; the kubelet asks none, nor do the other probes."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with health({b"": SERVING}) as address:
        assert (await asyncio.wait_for(check(address), 30))[0] is ProbeOutcome.OK


async def test_a_name_that_is_too_long_is_refused() -> None:
    """Names of 128 bytes and more are no service of anybody."""
    with pytest.raises(ValueError, match="128"):
        await check(f"127.0.0.1:1/{'x' * 128}")


def test_the_setting() -> None:
    """grpc://HOST:PORT[/SERVICE] is a gRPC probe, and needs its port."""
    assert ProbeTarget.parse("m=grpc://127.0.0.1:8001/llm") == ProbeTarget("m", ProbeKind.GRPC, "127.0.0.1:8001/llm")
    with pytest.raises(ValueError, match="a port"):
        ProbeTarget.parse("grpc://127.0.0.1")
