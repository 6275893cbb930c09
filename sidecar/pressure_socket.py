"""systemd's memory pressure protocol, offered in the shared directory to every program that speaks it.

A client connects to `pressure.sock`, and gets a byte whenever there is pressure, again every ten seconds while it
lasts. It means "give back what you can spare"; there is one degree only. What a client writes, for example
MEMORY_PRESSURE_WRITE, is thrown away: the sidecar has its own thresholds (systemd, docs/PRESSURE.md).
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Final

from sidecar.sight.handover_listen import listen

NAME: Final = "pressure.sock"
_CLIENTS: Final = 64
_MOST_BYTES: Final = 4096
"""A client may write in all: thresholds are a line. Who writes more is hung up on."""
_EVENT: Final = b"\n"


class PressureSocket:
    """Listens between `start` and `close`, in one event loop. Sending never waits."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: it cannot be listened there; the text says why.
        """
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listen(self._path, socket.SOCK_STREAM), limit=_MOST_BYTES
        )

    def tell(self) -> int:
        """Send one event to every client; give how many it went to. Who has not read the last ones is passed over."""
        ready = [client for client in self._clients if client.transport.get_write_buffer_size() == 0]
        for client in ready:
            client.write(_EVENT)
        return len(ready)

    async def close(self) -> None:
        """Hang up on everybody."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for client in tuple(self._clients):
            client.close()
        await server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= _CLIENTS:
            writer.close()
            return
        self._clients.add(writer)
        try:
            left = _MOST_BYTES
            while left > 0 and (data := await reader.read(_MOST_BYTES)):
                left -= len(data)
        except ConnectionError:
            pass
        finally:
            self._clients.discard(writer)
            writer.close()
