"""ASGI middleware: FastAPI, Starlette, vLLM (`--middleware guard.adapters.asgi.GuardMiddleware`), LitServe, BentoML.

It hands every message through as it is, so that streams stay streams; nothing is buffered. While memory is critical a
new request is answered 503 with Retry-After, and a WebSocket is refused; who is in stays in. Requests count as in
flight and as progress (beats `requests` and `responses`), a memory failure that passes is reported.

Health checks and metrics go through untouched and uncounted: shedding load must not fail a liveness probe, and a
probe that is answered is no progress of the model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeAlias

import guard
from guard.adapters.failures import reporting
from guard.admission import RETRY_AFTER_SECONDS

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

EXEMPT: Final = ("/health", "/healthz", "/livez", "/readyz", "/startupz", "/ping", "/metrics", "/v2/health", "/-/")
"""Paths of probes and metrics in vLLM, SGLang, Triton's protocol, BentoML, LitServe and Ray Serve; what lies below
them as well."""
BODY: Final = b"short of memory, try again later\n"
_TRY_AGAIN_LATER: Final = 1013  # RFC 6455 registry of close codes


class GuardMiddleware:
    """Wraps an ASGI application, and installs the guard.

    Args:
        app: the application.
        exempt: paths that go through untouched, with what lies below them; below "/" lies nothing.
        retry_after_seconds: what a request that is turned away is told.
    """

    def __init__(
        self, app: App, *, exempt: Iterable[str] = EXEMPT, retry_after_seconds: int = RETRY_AFTER_SECONDS
    ) -> None:
        self._app = app
        self._exempt = tuple(path.rstrip("/") for path in ((exempt,) if isinstance(exempt, str) else exempt))
        self._retry_after = str(retry_after_seconds).encode()
        guard.install()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in ("http", "websocket") or self._is_exempt(scope.get("path") or ""):
            await self._app(scope, receive, send)
            return
        admission = guard.admit()
        if not admission:
            await self._turn_away(scope, receive, send)
            return
        with admission, reporting():
            await self._app(scope, receive, _counting(send))
        guard.beat("requests")

    def _is_exempt(self, path: str) -> bool:
        plain = path.rstrip("/")
        return any(plain == one or (one and plain.startswith(f"{one}/")) for one in self._exempt)

    async def _turn_away(self, scope: Message, receive: Receive, send: Send) -> None:
        prefix = ""
        if scope["type"] == "websocket":
            await receive()  # the connect; an answer before it is against the protocol
            if "websocket.http.response" not in (scope.get("extensions") or {}):
                await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER, "reason": BODY.decode().strip()})
                return
            prefix = "websocket."
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(BODY)).encode()),
            (b"retry-after", self._retry_after),
        ]
        await send({"type": f"{prefix}http.response.start", "status": 503, "headers": headers})
        await send({"type": f"{prefix}http.response.body", "body": BODY})


def _counting(send: Send) -> Send:
    """Count every part of an answer as progress: in a stream a part is about a token."""

    async def counted(message: Message) -> None:
        await send(message)
        if message["type"] in ("http.response.body", "websocket.send"):
            guard.beat("responses")

    return counted
