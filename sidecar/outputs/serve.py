"""Serving the application on a real socket, so that no client can hurt the probes.

aiohttp closes a connection that sends no complete request within `idle_seconds` and refuses heads above 8 KiB. What
it lacks is a bound on connections: above `max_connections` the oldest one that is not a stream gives way, because a
refused kubelet would count as a failed probe of the model.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger

from sidecar.board import Board
from sidecar.outputs.http import HttpOptions, make_app
from sidecar.outputs.stream import STREAMING

_BACKLOG = 128
_SHUTDOWN_SECONDS = 2.0  # streams end at once when told; this bounds what is left


class ServeError(OSError):
    """The address cannot be listened on. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. `port` is the real one where 0 was asked for."""

    host: str
    port: int


@asynccontextmanager
async def serving(board: Board, options: HttpOptions) -> AsyncIterator[Server]:
    """Serve while the block runs. Raises `ServeError` where the address is taken, foreign or forbidden."""
    app = make_app(board, options)
    runner = web.AppRunner(
        app,
        handle_signals=False,
        access_log=None,
        keepalive_timeout=options.idle_seconds,
        shutdown_timeout=_SHUTDOWN_SECONDS,
    )
    await runner.setup()
    server_logger.addFilter(_is_ours)
    try:
        listener = await _listen(runner, options)
        try:
            name = listener.sockets[0].getsockname()
            yield Server(host=str(name[0]), port=int(name[1]))
        finally:
            listener.close()
    finally:
        await runner.cleanup()
        server_logger.removeFilter(_is_ours)


def _is_ours(record: logging.LogRecord) -> bool:
    """Leave out requests that were no HTTP: whoever scans the port was answered 400, and nothing here is amiss."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


async def serve(board: Board, options: HttpOptions) -> None:
    """Serve until cancelled."""
    async with serving(board, options):
        await asyncio.Event().wait()


async def _listen(runner: web.AppRunner, options: HttpOptions) -> asyncio.Server:
    server = runner.server
    assert server is not None

    def protocol() -> asyncio.BaseProtocol:
        # A connection stays listed until the loop's next turn, and one turn takes in as many as wait.
        still_open = [one for one in server.connections if one.transport is not None]
        too_many = max(0, len(still_open) + 1 - options.max_connections)
        for one in [one for one in still_open if one not in runner.app[STREAMING]][:too_many]:
            one.force_close()
        return server()

    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(protocol, options.host or None, options.port, backlog=_BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:  # UnicodeError: no host can have such a name
        where = f"{options.host or '*'}:{options.port}"
        number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
        reason = os.strerror(number) if number else str(getattr(error, "strerror", None) or error)
        raise ServeError(f"cannot listen on {where}: {reason}; set another address with OOMGUARD_LISTEN") from error
