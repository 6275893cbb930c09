"""One health check by gRPC (grpc.health.v1), for servers that speak nothing else. Needs the `grpc` extra.

Request and response are one field each, so they are written by hand: no generated code, no protobuf at run time. grpcio
itself takes about 21 MiB; give the sidecar that much more than its 64 MiB.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import grpc
import grpc.aio

from sidecar.sample import ProbeOutcome

_METHOD: Final = "/grpc.health.v1.Health/Check"
_STATUS: Final = b"\x08"  # field 1, varint
_SERVING: Final = 1
_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own each time
    ("grpc.enable_http_proxy", 0),  # a proxy in the environment is for the way out of the pod
)
_SHORT: Final = 0x80  # lengths below fit into one byte


def _request(service: str) -> bytes:
    """Encode `HealthCheckRequest{service}`; empty asks about the whole server."""
    name = service.encode()
    if len(name) >= _SHORT:
        raise ValueError("the name of a gRPC service is shorter than 128 bytes")
    return b"\x0a" + bytes([len(name)]) + name if name else b""


def _answer(message: bytes) -> tuple[ProbeOutcome, str]:
    """Decode `HealthCheckResponse{status}`; proto3 leaves out UNKNOWN, which is 0."""
    status = message[1] if message[:1] == _STATUS and len(message) > 1 else 0
    return (ProbeOutcome.OK if status == _SERVING else ProbeOutcome.FAILED), f"serving status {status}"


async def check(where: str) -> tuple[ProbeOutcome, str]:
    """Ask `HOST:PORT[/SERVICE]` over a connection of its own; a refusing server raises `ConnectionRefusedError`."""
    address, _, service = where.partition("/")
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        call = channel.unary_unary(_METHOD, request_serializer=bytes, response_deserializer=bytes)
        try:
            return _answer(await call(_request(unquote(service))))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise ConnectionRefusedError(111, error.details() or "unavailable") from error
            return ProbeOutcome.FAILED, f"gRPC {error.code().name}: {error.details()}"[:200]
