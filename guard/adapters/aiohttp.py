"""aiohttp: `web.Application(middlewares=[guard.adapters.aiohttp.middleware])`, after `guard.install()`.

It does what `guard.adapters.asgi` does, for the same paths.
Responses that a handler streams by itself (`StreamResponse`) are not counted part by part; the request is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

import guard
from guard.adapters.asgi import BODY, EXEMPT
from guard.adapters.failures import reporting
from guard.admission import RETRY_AFTER_SECONDS

_EXEMPT: Final = tuple(path.rstrip("/") for path in EXEMPT)


@web.middleware
async def middleware(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Serve one request, or turn it away with 503 while memory is critical."""
    if any(request.path == one or request.path.startswith(f"{one}/") for one in _EXEMPT):
        return await handler(request)
    admission = guard.admit()
    if not admission:
        return web.Response(status=503, body=BODY, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})
    with admission, reporting():
        try:
            response = await handler(request)
        except web.HTTPException:  # an answer, as aiohttp has it
            guard.beat("requests")
            raise
    guard.beat("requests")
    return response
