"""The pages over a real server and real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice

import aiohttp
import pytest
from board_makers import NOW, FrozenClock, board, incident, judgement, view

from guard.model import Known
from sidecar.board import Board
from sidecar.health.values import State
from sidecar.livez import LivenessAnswers
from sidecar.outputs.http import ROUTES, HttpOptions
from sidecar.outputs.serve import ServeError, Server, serve, serving
from sidecar.sample import Instant

HOST = "127.0.0.1"


@asynccontextmanager
async def pages(seen: Board, **changed: object) -> AsyncIterator[tuple[aiohttp.ClientSession, Server]]:
    """A client of a server of a board."""
    options = HttpOptions(**({"host": HOST, "port": 0, "clock": FrozenClock()} | changed))  # type: ignore[arg-type] # kw
    async with (
        serving(seen, options) as server,
        aiohttp.ClientSession(f"http://{HOST}:{server.port}") as session,
    ):
        yield session, server


async def raw(port: int, sent: bytes, *, wait: float = 30.0) -> bytes:
    """Send bytes and read until the server closes."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), wait)
    finally:
        writer.close()


@pytest.mark.parametrize("path", [*ROUTES, "/livez/llm", "/readyz/llm", "/startupz/llm", "/incidents/i-1"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_every_page_answers_get_and_head(method: str, path: str) -> None:
    """Each route of the list is there; HEAD gives the head alone; nothing may be cached or framed."""
    async with (
        pages(board(view(incidents=(incident(),)))) as (session, _),
        session.request(method, path, timeout=aiohttp.ClientTimeout(30)) as answer,
    ):
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == "no-store"
        first = await answer.content.readany()
        assert bool(first) is (method == "GET")


@pytest.mark.parametrize("failing", [True, False])
async def test_answers_of_liveness_are_counted_as_they_are_given(*, failing: bool) -> None:
    """Each answer to /livez, of all models or of one, counts for who asked; other questions and models do not."""
    counted = LivenessAnswers()
    seen = board(view(judgement=judgement(State.HUNG, live=not failing)))
    async with pages(seen, livez=counted) as (session, _):
        for path in ("/livez", "/livez/llm", "/livez/nobody", "/readyz", "/livez?verbose"):
            async with session.get(path, headers={"User-Agent": "kube-probe/1.31"}) as answer:
                await answer.read()
    assert counted.asked("llm")
    assert not counted.asked("nobody")
    run = counted.failing("llm", NOW)
    assert (run and run.failures) == (3 if failing else None)


async def test_health_is_text_that_verbose_and_json_explain() -> None:
    """A probe reads two letters, a person `?verbose`, a program JSON; the status is the same for all."""
    failing = view(judgement=judgement(State.HUNG, live=False, reasons=("no answer for 30 s",)))
    async with pages(board(failing)) as (session, _):
        async with session.get("/livez") as plain:
            assert (plain.status, await plain.text()) == (503, "failed: hung; no answer for 30 s\n")
        async with session.get("/livez?verbose") as long:
            assert (long.status, "state: hung" in await long.text()) == (503, True)
        async with session.get("/livez", headers={"Accept": "application/json"}) as answer:
            said = await answer.json()
            assert (answer.status, said["passed"], said["models"]["llm"]["state"]) == (503, False, "hung")
            assert said["models"]["llm"]["last_probe"]["value"]["outcome"] == "ok"
            assert said["models"]["llm"]["credit_left_seconds"] == 60.0
        async with session.get("/readyz/llm") as ready:
            assert (ready.status, await ready.text()) == (200, "ok\n")


async def test_a_model_is_found_by_any_name() -> None:
    """Names come from users: slashes, spaces and letters beyond ASCII are parts of a name."""
    name = "org/Modèle 7b"
    async with (
        pages(board(view(name))) as (session, _),
        session.get("/livez/org/Mod%C3%A8le%207b") as answer,
    ):
        assert await answer.text() == "ok\n"


@pytest.mark.parametrize("question", ["livez", "readyz", "startupz"])
async def test_an_empty_name_is_none(question: str) -> None:
    """`/livez/` asks about every model: a 404 would fail a probe whose name was left empty."""
    async with pages(board(view())) as (session, _), session.get(f"/{question}/") as answer:
        assert answer.status == 200


async def test_a_name_that_is_not_utf8_breaks_no_page() -> None:
    """A lone surrogate in a name (a command line in another encoding) is shown as a question mark everywhere."""
    bad = judgement(State.HUNG, live=False, reasons=("r\udcff",))
    async with pages(board(view("m\udcff", judgement=bad), view("n"))) as (session, _):
        for path in ("/livez", "/livez?verbose", "/status", "/metrics", "/", "/incidents"):
            async with session.get(path) as answer:
                assert answer.status in {200, 503}, path
                assert await answer.text()


async def test_wrong_paths_and_methods_say_what_there_is() -> None:
    """404 lists the pages, 405 the methods; neither is HTML from a framework."""
    async with pages(board(view())) as (session, _):
        async with session.get("/healthz") as answer:
            assert answer.status == 404
            assert "/livez" in await answer.text()
        async with session.post("/livez", data=b"x") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        async with session.get("/incidents/none") as answer:
            assert answer.status == 404
            assert "the record holds older ones" in await answer.text()


async def test_incidents_are_newest_first_each_once() -> None:
    """Incidents of the record and of this life are one list."""
    old, new = incident("old"), incident("new")
    newer = type(new)(**{name: getattr(new, name) for name in new.__slots__} | {"at": Instant(2000.0, NOW.wall_s + 9)})
    seen = board(view(incidents=(newer, old)))
    seen.past_incidents = (old, incident("gone", model="other"))
    async with pages(seen) as (session, _), session.get("/incidents") as answer:
        document = await answer.json()
        listed = document["incidents"]
        assert [one["id"] for one in listed] == ["new", "old", "gone"]
        assert document["more_in_record"] is None
        assert listed[0]["verdict_after_seconds"] == 0.12


async def test_how_many_more_ends_the_record_holds_is_said() -> None:
    """On the page, which shows fewer, and in the list; ends of children do not hide those of the model."""
    children = [incident(f"child-{place}", main=False) for place in range(30)]
    seen = board(view(incidents=(*children, incident("the-model"))))
    seen.incidents_recorded = Known(227)
    async with pages(seen) as (session, _):
        async with session.get("/incidents") as answer:
            assert (await answer.json())["more_in_record"] == 227 - 31
        async with session.get("/") as answer:
            text = await answer.text()
            assert "incidents/the-model" in text
            assert f"{227 - 11} more in the record" in text


async def test_the_page_escapes_whatever_a_model_says() -> None:
    """Names, texts and file names are not markup, and the page may load nothing."""
    evil = "<script>alert(1)</script>"
    seen = board(view(evil, incidents=(incident(evil, evil),), judgement=judgement(reasons=(evil,))))
    async with pages(seen) as (session, _), session.get("/") as answer:
        text = await answer.text()
        assert "<script" not in text
        assert "&lt;script&gt;" in text
        assert "file:///models" not in text
        assert "/models/&lt;b&gt;.safetensors" in text
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "unlimited" in text


async def test_documents_follow_the_board() -> None:
    """What is rendered once a tick is rendered anew for the next one, and ages by the second."""
    seen, clock = board(view()), FrozenClock()
    async with pages(seen, clock=clock) as (session, _):

        async def age() -> float:
            async with session.get("/status") as answer:
                return float(json.loads(await answer.text())["sidecar"]["tick_age_seconds"])

        assert await age() == 0.0
        clock.at = Instant(NOW.monotonic_s + 3, NOW.wall_s + 3)
        assert await age() == 3.0
        seen.models = {"other": view("other")}
        async with session.get("/status") as answer:
            assert list(json.loads(await answer.text())["models"]) == ["other"]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n",
        b"GET /%00%ff%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"BREW /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
    ids=["long-url", "long-header", "tls", "bad-escapes", "unknown-method", "future-version", "negative-length"],
)
async def test_hostile_requests_are_refused_and_cost_nothing(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Each gets a 4xx, the next probe is served as if nothing had been, and no error of ours is logged."""
    async with pages(board(view())) as (session, server):
        assert (await raw(server.port, sent)).split(b" ")[1][:1] == b"4"
        async with session.get("/livez") as answer:
            assert answer.status == 200
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []


async def test_a_client_that_never_finishes_its_request_is_dropped() -> None:
    """Half a request holds a connection for the idle time, no longer."""
    async with pages(board(view()), idle_seconds=0.3) as (_, server):
        assert await raw(server.port, b"GET /livez HT") == b""
        assert await raw(server.port, b"") == b""


async def test_idle_connections_give_way_to_a_probe() -> None:
    """With every connection taken by silent clients a probe still gets its answer."""
    async with pages(board(view()), max_connections=8) as (session, server):
        silent = [await asyncio.open_connection(HOST, server.port) for _ in range(40)]
        async with session.get("/livez", timeout=aiohttp.ClientTimeout(30)) as answer:
            assert answer.status == 200
        ends = [asyncio.create_task(_ended(reader)) for reader, _ in silent]
        async with asyncio.timeout(30):
            for end in islice(asyncio.as_completed(ends), 32):
                await end
        for end in ends:
            end.cancel()
        for _, writer in silent:
            writer.close()


async def test_a_burst_of_connections_leaves_no_more_than_are_allowed() -> None:
    """What comes within one turn of the loop counts as well, or a scan of the port would take the sidecar's memory."""
    async with pages(board(view()), max_connections=8, idle_seconds=300.0) as (session, server):
        bursts = []
        for _ in range(3):
            bursts += [socket.create_connection((HOST, server.port)) for _ in range(60)]
            async with session.get("/livez", timeout=aiohttp.ClientTimeout(30)) as answer:
                assert answer.status == 200
        ended = 0
        async with asyncio.timeout(30):
            while ended < len(bursts) - 60 - 8:
                await asyncio.sleep(0.05)
                ended = sum(_has_ended(one) for one in bursts)
        for one in bursts:
            one.close()


def _has_ended(connection: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        connection.settimeout(0)
        return connection.recv(1, socket.MSG_PEEK) == b""
    return False


async def _ended(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""


async def test_a_busy_port_is_a_message() -> None:
    """The second server says which address is taken and how to set another."""
    async with pages(board()) as (_, server):
        with pytest.raises(ServeError, match=f"cannot listen on {HOST}:{server.port}: Address already in use"):
            await serve(board(), HttpOptions(host=HOST, port=server.port))


async def test_a_name_that_does_not_resolve_is_a_message() -> None:
    """A wrong host is no traceback."""
    with pytest.raises(ServeError, match=r"cannot listen on no\.such\.host\.invalid:0"):
        await serve(board(), HttpOptions(host="no.such.host.invalid", port=0))


async def test_liveness_is_quick_among_heavy_clients() -> None:
    """99 of 100 probes wait for less than 50 ms of work while scrapers and readers keep asking (bench: 10 ms)."""
    seen = board(*(view(f"m{number}") for number in range(8)))
    stop = asyncio.Event()
    async with pages(seen, clock=FrozenClock()) as (session, _):

        async def nag(path: str) -> int:
            count = 0
            while not stop.is_set():
                async with session.get(path) as answer:
                    await answer.read()
                count += 1
            return count

        nags = [asyncio.create_task(nag(path)) for path in ("/metrics", "/status", "/", "/incidents")]
        taken = []
        for turn in range(300):
            if turn % 10 == 0:
                seen.models = dict(seen.models)  # a tick
            began = time.process_time()
            async with session.get("/livez") as answer:
                assert answer.status == 200
            taken.append(time.process_time() - began)
        stop.set()
        assert all(count > 0 for count in await asyncio.gather(*nags))
    assert sorted(taken)[296] < 0.05
