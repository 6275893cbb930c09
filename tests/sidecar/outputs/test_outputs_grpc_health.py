"""The answers as gRPC health, asked over real connections."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from board_makers import FrozenClock, board, judgement, view

from sidecar.collect.probe_grpc import check
from sidecar.livez import LivenessAnswers
from sidecar.outputs.grpc_health import serving
from sidecar.outputs.http import HttpOptions
from sidecar.outputs.serve import ServeError
from sidecar.sample import ProbeOutcome
from sidecar.settings import Address
from tests.lab.kit.ports import free_port
from tests.lab.kit.wait import until
from tests.sidecar.daemons import Daemon, model

OPTIONS = HttpOptions(clock=FrozenClock())
ANY = Address("127.0.0.1", 0)


@pytest.mark.parametrize(
    ("service", "outcome"),
    [
        ("", ProbeOutcome.OK),
        ("livez", ProbeOutcome.OK),
        ("livez/llm", ProbeOutcome.OK),
        ("livez/other", ProbeOutcome.OK),
        ("readyz", ProbeOutcome.FAILED),
        ("readyz/llm", ProbeOutcome.FAILED),
        ("startupz", ProbeOutcome.OK),
        ("startupz/other", ProbeOutcome.FAILED),
    ],
)
async def test_a_service_is_a_page(service: str, outcome: ProbeOutcome) -> None:
    """What is served over HTTP is served here under the same name, with the same answer."""
    seen = board(replace(view(), judgement=replace(judgement(), ready=False)))
    async with serving(seen, OPTIONS, ANY) as port:
        assert (await asyncio.wait_for(check(f"127.0.0.1:{port}/{service}"), 30))[0] is outcome


@pytest.mark.parametrize("sent", [b"\x0a\x06health", b"\x0a", b"\x0a\x09livez", b"\xff" * 300, b"\x0a\x02\xff\xff"])
async def test_what_is_no_page_is_not_found(sent: bytes) -> None:
    """Unknown services and requests that are in no shape get the status that the protocol has for it."""
    async with serving(board(view()), OPTIONS, ANY) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            "/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call(sent), 30)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_failures_of_liveness_are_counted_for_who_asks() -> None:
    """The kubelet that is told by gRPC that a model is not alive is the evidence for the end that it brings about."""
    counted = LivenessAnswers()
    seen = board(replace(view(), judgement=replace(judgement(), live=False)))
    options = HttpOptions(clock=FrozenClock(), livez=counted)
    agent = (("grpc.primary_user_agent", "kube-probe/1.33"),)
    async with (
        serving(seen, options, ANY) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=agent) as channel,
    ):
        call = channel.unary_unary(
            "/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes
        )
        assert await asyncio.wait_for(call(b""), 30) == b"\x08\x02"
    failing = counted.failing("llm", FrozenClock().now())
    assert failing is not None
    assert failing.failures == 1


async def test_an_address_that_is_taken_is_a_message() -> None:
    """The second server says which address is taken and how to set another."""
    async with serving(board(), OPTIONS, ANY) as port:
        with pytest.raises(ServeError, match=f"127.0.0.1:{port}.*OOMGUARD_GRPC_LISTEN"):
            async with serving(board(), OPTIONS, Address("127.0.0.1", port)):
                pass


def test_the_daemon_serves_it_where_it_is_set(tmp_path: Path) -> None:
    """A server that is not ready is not serving, by gRPC as by HTTP."""
    port = free_port()
    with (
        Daemon(tmp_path, tmp_path / "log", "--grpc-listen", f"127.0.0.1:{port}") as daemon,
        model(tmp_path, "llm", "sys.stdin.readline()"),
    ):
        until(lambda: "llm" in daemon.get("/status")["models"], 30, "the model")

        def asked(service: str) -> ProbeOutcome:
            return asyncio.run(asyncio.wait_for(check(f"127.0.0.1:{port}/{service}"), 30))[0]

        assert asked("livez/llm") is ProbeOutcome.OK
        assert asked("readyz/absent") is ProbeOutcome.FAILED
        assert daemon.stop() == 0
