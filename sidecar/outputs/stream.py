"""`/events`: a Server-Sent Events stream (WHATWG HTML, section 9.2) over the board's ring, and its JSON form.

Every client reads from the ring at its own pace and keeps only the id it has seen, so a slow client holds no queue: it
skips what has left the ring and is told so by an `event: missed`. One watcher looks at the ring for all clients,
and only while there is one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from sidecar.board import Board, Event
from sidecar.outputs.shape import encode, event_document

STREAMING: Final = web.AppKey("streaming", set[object])
"""Protocols of the connections that carry a stream now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """Bounds of the event stream."""

    clients: int = 32
    """Streams at once; one more gets 503. A person and two collectors use three."""
    look_seconds: float = 0.1
    """Pause between two looks at the ring: the shortest tick."""
    keepalive_seconds: float = 15.0
    """A comment is sent this often when nothing happens; proxies cut silent connections after 30 to 60 s."""
    send_seconds: float = 30.0
    """A client that takes nothing for this long is dropped; it can resume with Last-Event-ID."""


def after(events: tuple[Event, ...], seen: int) -> tuple[tuple[Event, ...], bool]:
    """Events newer than `seen`, and whether some between have left the ring. An id from the future starts over."""
    if not events:
        return (), False
    if seen > events[-1].id:
        return events, True
    fresh = tuple(event for event in events if event.id > seen)
    return fresh, bool(fresh) and fresh[0].id > seen + 1 and seen > 0


class EventStream:
    """The handler of `/events`."""

    def __init__(self, board: Board, limits: StreamLimits) -> None:
        self._board = board
        self._limits = limits
        self._clients = 0
        self._moved = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer `?since=ID` with a list, everything else with a stream that resumes after Last-Event-ID."""
        since = request.query.get("since")
        if since is not None:
            return self._list(since)
        if request.method == "HEAD":
            return web.Response(headers={"Content-Type": "text/event-stream"})
        last = request.headers.get("Last-Event-ID", "")
        seen = int(last) if _is_id(last) else 0
        if self._stopping or self._clients >= self._limits.clients:
            text = f"{self._clients} event streams are open, no more are served; use ?since=ID\n"
            return web.Response(text=text, status=503, headers={"Retry-After": "5"})
        return await self._stream(request, seen)

    def _list(self, since: str) -> web.Response:
        if not _is_id(since):
            return web.Response(text="?since takes the id of an event: a whole number from 0\n", status=400)
        fresh, missed = after(self._board.events, int(since))
        last = self._board.events[-1].id if self._board.events else 0
        document = {"events": [event_document(event) for event in fresh], "last_id": last, "missed": missed}
        return web.Response(body=encode(document), content_type="application/json")

    async def _stream(self, request: web.Request, seen: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        self._clients += 1
        request.app[STREAMING].add(request.protocol)
        try:
            await response.prepare(request)
            await self._send(response, seen)
        except (ConnectionError, TimeoutError):
            pass  # the client went away or stopped reading
        finally:
            self._clients -= 1
            request.app[STREAMING].discard(request.protocol)
        return response

    async def _send(self, response: web.StreamResponse, seen: int) -> None:
        limits = self._limits
        await response.write(b"retry: 2000\n\n")
        while not self._stopping:
            moved = self._watch()
            fresh, missed = after(self._board.events, seen)
            if missed:
                await asyncio.wait_for(response.write(b"event: missed\ndata: {}\n\n"), limits.send_seconds)
            for event in fresh:
                data = b"id: %d\nevent: %b\ndata: %b\n\n" % (event.id, _word(event.kind), encode(event_document(event)))
                await asyncio.wait_for(response.write(data), limits.send_seconds)
                seen = event.id
            if fresh:
                continue
            try:
                await asyncio.wait_for(moved.wait(), limits.keepalive_seconds)
            except TimeoutError:
                await asyncio.wait_for(response.write(b": nothing new\n\n"), limits.send_seconds)

    def _watch(self) -> asyncio.Event:
        """The event that is set when the ring next moves; starts the watcher if none runs."""
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._look(self._board.events), name="events-watcher")
        return self._moved

    async def _look(self, before: tuple[Event, ...]) -> None:
        while self._clients and not self._stopping:
            await asyncio.sleep(self._limits.look_seconds)
            if self._board.events is not before:
                before = self._board.events
                self._moved.set()
                self._moved = asyncio.Event()

    async def stop(self, _app: web.Application) -> None:
        """End all streams, so that a shutdown does not wait for them."""
        self._stopping = True
        self._moved.set()
        if self._watcher is not None:
            self._watcher.cancel()


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19  # noqa: PLR2004 - fits 63 bits


def _word(kind: str) -> bytes:
    """An event name that cannot break the framing."""
    return "".join(char for char in kind if char.isalnum() or char == "_").encode()
