"""The sidecar's pages: routes and handlers. What they show is docs/http.md.

Handlers answer from the board alone, without IO. The big documents (status, metrics, page) are rendered once a tick
however many clients ask, so a scrape storm cannot slow down `/livez`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from aiohttp import web

from sidecar.board import Board
from sidecar.clock import Clock, SystemClock
from sidecar.livez import Asker, LivenessAnswers
from sidecar.outputs import answers, metrics, page, status
from sidecar.outputs.answers import HealthAnswer, Question
from sidecar.outputs.shape import Json, clean, encode, incident_document, incident_in_full
from sidecar.outputs.stream import STREAMING, EventStream, StreamLimits
from sidecar.sample import Instant

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

ROUTES: Final[Mapping[str, str]] = {
    "/": "page for people",
    "/livez": "liveness of every model, /livez/NAME of one",
    "/readyz": "readiness of every model, /readyz/NAME of one",
    "/startupz": "startup of every model, /startupz/NAME of one",
    "/status": "everything latest, as JSON",
    "/metrics": "Prometheus text",
    "/events": "stream of events, or JSON list with ?since=ID",
    "/incidents": "ends and their verdicts, as JSON; /incidents/ID for one",
    "/sidecar/livez": "liveness of the sidecar itself",
    "/sidecar/readyz": "readiness of the sidecar itself",
}
_NO_INCIDENT: Final = "no such incident in memory; /incidents lists them, the record holds older ones\n"
_PROGRAM_LENGTH: Final = 32
_HINT: Final = "".join(f"  {path:16} {text}\n" for path, text in ROUTES.items())
_SAFE: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """How to serve. `host` None or empty: all addresses, IPv4 and IPv6. `port` 0: any free one."""

    host: str | None = None
    port: int = 9475
    clock: Clock = field(default_factory=SystemClock)
    streams: StreamLimits = field(default_factory=StreamLimits)
    idle_seconds: float = 15.0
    """A connection without a complete request this long is closed; the kubelet opens a new one for each probe."""
    livez: LivenessAnswers = field(default_factory=LivenessAnswers)
    """Counts what `/livez` answers."""
    max_connections: int = 256
    """Above this the oldest connection that is not a stream gives way, so a probe always gets in."""


class _Once:
    """Renders a document once a tick: again only when the board has moved, or a second has passed."""

    def __init__(self, render: Callable[[Board, Instant], bytes]) -> None:
        self._render = render
        self._from: tuple[object, ...] = ()
        self._second = -1
        self._body = b""

    def get(self, board: Board, now: Instant) -> bytes:
        """Give the document. The sources are held, so that a new object cannot take an old one's identity."""
        sources = (board.models, board.own, board.events, board.past_ends, board.past_incidents)
        second = int(now.monotonic_s)
        if second != self._second or any(new is not old for new, old in zip(sources, self._from, strict=True)):
            self._body = self._render(board, now)
            self._from, self._second = sources, second
        return self._body


class _Pages:
    """The handlers over one board."""

    def __init__(self, board: Board, options: HttpOptions) -> None:
        self._board = board
        self._clock = options.clock
        self._livez = options.livez
        self._page = _Once(page.render)
        self._status = _Once(status.render)
        self._metrics = _Once(metrics.render)

    def health(self, question: Question) -> Handler:
        """Make the handler of `/livez`, `/readyz` or `/startupz`, with or without a name."""

        async def handle(request: web.Request) -> web.Response:
            now = self._clock.now()
            answer = answers.ask(self._board, question, now, request.match_info.get("name") or None)
            if question is Question.LIVE:
                seen = [one.name for one in answer.models if one.view is not None]
                self._livez.count(_asker(request), seen, now, passed=answer.passed)
            return self._say(request, answer)

        return handle

    def sidecar(self, *, ready: bool) -> Handler:
        """Make the handler of `/sidecar/livez` or `/sidecar/readyz`."""

        async def handle(request: web.Request) -> web.Response:
            return self._say(request, answers.ask_sidecar(self._board, self._clock.now(), ready=ready))

        return handle

    def _say(self, request: web.Request, answer: HealthAnswer) -> web.Response:
        if "application/json" in request.headers.get("Accept", ""):
            return _json(answers.explain(answer, self._board), answer.status)
        text = answers.verbose(answer, self._board) if "verbose" in request.query else answer.line()
        return web.Response(text=clean(text) + "\n", status=answer.status)

    async def page(self, _request: web.Request) -> web.Response:
        """Show the page for people."""
        body = self._page.get(self._board, self._clock.now())
        return web.Response(body=body, content_type="text/html", charset="utf-8")

    async def status(self, _request: web.Request) -> web.Response:
        """Give everything latest as JSON."""
        return web.Response(body=self._status.get(self._board, self._clock.now()), content_type="application/json")

    async def metrics(self, _request: web.Request) -> web.Response:
        """Give the metrics in Prometheus' text format."""
        body = self._metrics.get(self._board, self._clock.now())
        return web.Response(body=body, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def incidents(self, _request: web.Request) -> web.Response:
        """List the newest incidents of all models, newest first, and say how many more the record holds."""
        listed: list[Json] = [incident_document(one) for one in self._board.incidents()]
        return _json({"incidents": listed, "more_in_record": self._board.more_in_record(len(listed))})

    async def incident(self, request: web.Request) -> web.Response:
        """Give one incident in full."""
        wanted = request.match_info["id"]
        found = next((one for one in self._board.incidents() if one.id == wanted), None)
        if found is None:
            return web.Response(text=_NO_INCIDENT, status=404)
        return _json(incident_in_full(found))


def _asker(request: web.Request) -> Asker:
    program = request.headers.get("User-Agent", "").partition("/")[0]
    return Asker(request.remote or "", program[:_PROGRAM_LENGTH])


def _json(document: object, status_code: int = 200) -> web.Response:
    return web.Response(body=encode(document), content_type="application/json", status=status_code)


@web.middleware
async def _manners(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn framework errors into clear text, and add the headers that make a page harmless."""
    try:
        response = await handler(request)
    except web.HTTPNotFound:
        response = web.Response(text=f"no such page; there are:\n{_HINT}", status=404)
    except web.HTTPMethodNotAllowed as error:
        allow = ", ".join(sorted(error.allowed_methods))
        text = f"method not allowed; this page takes {allow}\n"
        response = web.Response(text=text, status=405, headers={"Allow": allow})
    if not response.prepared:
        response.headers.update(_SAFE)
    return response


def make_app(board: Board, options: HttpOptions | None = None) -> web.Application:
    """Build the application over a board. It needs no other part of the sidecar to run."""
    options = options or HttpOptions()
    pages = _Pages(board, options)
    stream = EventStream(board, options.streams)
    app = web.Application(middlewares=[_manners], client_max_size=1024)
    app[STREAMING] = set()
    for question in Question:
        handler = pages.health(question)
        app.router.add_get(f"/{question.value}", handler)
        app.router.add_get(f"/{question.value}/{{name:.*}}", handler)
    app.router.add_get("/sidecar/livez", pages.sidecar(ready=False))
    app.router.add_get("/sidecar/readyz", pages.sidecar(ready=True))
    app.router.add_get("/status", pages.status)
    app.router.add_get("/metrics", pages.metrics)
    app.router.add_get("/events", stream.handle)
    app.router.add_get("/incidents", pages.incidents)
    app.router.add_get("/incidents/{id}", pages.incident)
    app.router.add_get("/", pages.page)
    app.on_shutdown.append(stream.stop)
    return app
