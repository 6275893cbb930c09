"""The answers to probes as gRPC health (grpc.health.v1), for supervisors that ask nothing else. Needs the `grpc` extra.

The service that is asked for is the page: `livez`, `readyz` or `startupz`, alone or with `/NAME`; none is `livez`. Only
`Check` is served: nobody who restarts servers watches. Messages are one field each and written by hand, as those of
the probe are (sidecar/collect/probe_grpc.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import grpc
import grpc.aio

from sidecar.board import Board
from sidecar.livez import Asker, LivenessAnswers
from sidecar.outputs import answers
from sidecar.outputs.answers import Question
from sidecar.outputs.http import HttpOptions
from sidecar.outputs.serve import ServeError
from sidecar.settings import Address

_SERVICE: Final = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"  # HealthCheckResponse{status}
_NAME: Final = 0x0A  # HealthCheckRequest{service}: field 1, length-delimited
_HEAD: Final = 2  # bytes: the tag and the length
_SHORT: Final = 0x80  # lengths below fit into one byte
_MORE_SECONDS: Final = 0.5  # for calls in flight at the end

_Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]


class _Health:
    def __init__(self, board: Board, options: HttpOptions) -> None:
        self._board = board
        self._clock = options.clock
        self._livez: LivenessAnswers = options.livez

    async def check(self, request: bytes, context: _Context) -> bytes:
        """Answer one call; a service that is no page is NOT_FOUND, as the protocol wants it."""
        page, _, name = _service(request).partition("/")
        if page not in {"", *Question}:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"services are {', '.join(Question)}, with /NAME or without")
        question, now = Question(page or Question.LIVE), self._clock.now()
        answer = answers.ask(self._board, question, now, name or None)
        if question is Question.LIVE:
            seen = [one.name for one in answer.models if one.view is not None]
            self._livez.count(_asker(context), seen, now, passed=answer.passed)
        return _SERVING if answer.passed else _NOT_SERVING


def _service(request: bytes) -> str:
    """Read the one field of a request; what is not in its shape is no service of ours."""
    if not request:
        return ""
    head, name = request[:_HEAD], request[_HEAD:]
    if len(name) >= _SHORT or head != bytes((_NAME, len(name))):
        return "?"
    return name.decode("utf-8", "replace")


def _asker(context: _Context) -> Asker:
    """Tell who asks, as the pages do: the kubelet's probe says `kube-probe/1.30 grpc-go/1.58`."""
    sent = dict(context.invocation_metadata() or ())
    program = str(sent.get("user-agent", "")).partition("/")[0]
    return Asker(context.peer().rpartition(":")[0], program[:32])


@asynccontextmanager
async def serving(board: Board, options: HttpOptions, where: Address) -> AsyncIterator[int]:
    """Serve while the block runs; give the port. Raises `ServeError` where the address cannot be listened on."""
    handler = grpc.unary_unary_rpc_method_handler(
        _Health(board, options).check, request_deserializer=bytes, response_serializer=bytes
    )
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Check": handler}),))
    try:
        port = server.add_insecure_port(str(where))
    except RuntimeError as error:
        raise ServeError(f"cannot listen on {where}; set another address with OOMGUARD_GRPC_LISTEN") from error
    await server.start()
    try:
        yield port
    finally:
        await server.stop(_MORE_SECONDS)
