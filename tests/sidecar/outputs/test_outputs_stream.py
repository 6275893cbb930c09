"""The event stream over real sockets."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from board_makers import FrozenClock, board, event, view
from hypothesis import given
from hypothesis import strategies as st

from sidecar.board import Board
from sidecar.outputs.http import HttpOptions
from sidecar.outputs.serve import serving
from sidecar.outputs.stream import StreamLimits, after

HOST = "127.0.0.1"
QUICK = StreamLimits(look_seconds=0.01, keepalive_seconds=0.2, send_seconds=1.0, clients=3)


def options(limits: StreamLimits = QUICK) -> HttpOptions:
    """A free port and short times."""
    return HttpOptions(host=HOST, port=0, clock=FrozenClock(), streams=limits)


def add(seen: Board, *numbers: int, text: str = "something") -> None:
    """Put events on the board as the tick does: a new tuple."""
    seen.events = (*seen.events, *(event(number, text) for number in numbers))[-50:]


async def take(answer: aiohttp.ClientResponse, count: int) -> list[tuple[str, str]]:
    """The next messages of a stream as (id or event name, data)."""
    taken: list[tuple[str, str]] = []
    fields: dict[str, str] = {}
    while len(taken) < count:
        line = (await asyncio.wait_for(answer.content.readline(), 30)).decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            taken.append((fields.get("id", fields.get("event", "")), fields["data"]))
            fields = {}
    return taken


async def test_a_client_hears_what_was_and_what_comes() -> None:
    """The ring first, then each new event, with id, name and JSON."""
    seen = board(view(), events=(event(1), event(2)))
    async with (
        serving(seen, options()) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://{HOST}:{server.port}/events") as answer,
    ):
        assert answer.content_type == "text/event-stream"
        assert [number for number, _ in await take(answer, 2)] == ["1", "2"]
        add(seen, 3, text='a "quoted"\nline')
        [(number, data)] = await take(answer, 1)
        assert (number, json.loads(data)["text"]) == ("3", 'a "quoted"\nline')


async def test_a_client_resumes_where_it_was() -> None:
    """Last-Event-ID leaves out what was heard; what left the ring meanwhile is said as missed."""
    seen = board(view(), events=tuple(event(number) for number in range(10, 20)))
    async with serving(seen, options()) as server, aiohttp.ClientSession() as session:
        url = f"http://{HOST}:{server.port}/events"
        async with session.get(url, headers={"Last-Event-ID": "17"}) as answer:
            assert [number for number, _ in await take(answer, 2)] == ["18", "19"]
        async with session.get(url, headers={"Last-Event-ID": "5"}) as answer:
            assert [number for number, _ in await take(answer, 2)] == ["missed", "10"]
        async with session.get(url, headers={"Last-Event-ID": "not a number"}) as answer:
            assert [number for number, _ in await take(answer, 1)] == ["10"]


async def test_many_clients_each_hear_every_event_in_order() -> None:
    """Thirty streams, two hundred events: nobody misses or repeats one."""
    seen = board(view(), events=(event(1),))
    limits = StreamLimits(look_seconds=0.01, clients=30)
    async with (
        serving(seen, options(limits)) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):

        async def listen() -> list[int]:
            async with session.get(f"http://{HOST}:{server.port}/events") as answer:
                return [int(number) for number, _ in await take(answer, 200)]

        clients = [asyncio.create_task(listen()) for _ in range(30)]
        for number in range(2, 201):
            add(seen, number)
            await asyncio.sleep(0.003)
        assert [list(range(1, 201))] * 30 == await asyncio.gather(*clients)


async def test_one_stream_too_many_is_told_to_come_back() -> None:
    """Streams are bounded; the list with ?since still answers."""
    seen = board(view(), events=(event(1),))
    async with serving(seen, options()) as server, aiohttp.ClientSession() as session:
        url = f"http://{HOST}:{server.port}/events"
        held = [await session.get(url) for _ in range(3)]
        async with session.get(url) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        async with session.get(url + "?since=0") as answer:
            assert answer.status == 200
        for one in held:
            one.close()
        async with asyncio.timeout(30):
            while (again := await session.get(url)).status != 200:
                again.close()
                await asyncio.sleep(0.05)
        again.close()


async def test_a_silent_stream_is_kept_alive() -> None:
    """A comment comes when nothing happens, so proxies keep the connection."""
    async with (
        serving(board(view()), options()) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://{HOST}:{server.port}/events") as answer,
    ):
        async with asyncio.timeout(30):
            while await answer.content.readline() != b": nothing new\n":
                pass


async def test_a_client_that_stops_reading_is_dropped() -> None:
    """It holds neither memory nor a place: after the send time its stream is closed."""
    seen = board(view(), events=(event(1),))
    async with serving(seen, options(StreamLimits(look_seconds=0.01, send_seconds=0.2, clients=1))) as server:
        _, writer = await asyncio.open_connection(HOST, server.port, limit=1024)
        writer.transport.pause_reading()
        writer.write(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
        async with aiohttp.ClientSession() as session, asyncio.timeout(30):
            number = 2
            while True:
                add(seen, *range(number, number + 50), text="x" * 20_000)
                number += 50
                async with session.get(f"http://{HOST}:{server.port}/events") as answer:
                    if answer.status == 200 and number > 200:
                        break
                await asyncio.sleep(0.05)
        writer.close()


async def test_the_server_ends_although_streams_are_open() -> None:
    """A shutdown ends the streams instead of waiting for them."""
    async with aiohttp.ClientSession() as session:
        async with asyncio.timeout(30):
            async with serving(board(view(), events=(event(1),)), options()) as server:
                answer = await session.get(f"http://{HOST}:{server.port}/events")
                await take(answer, 1)
        assert await answer.content.read() == b""


@pytest.mark.parametrize("since", ["", "-1", "1.5", "x", "9" * 30, "٣"])
async def test_a_bad_since_is_told_so(since: str) -> None:
    """400 with the reason, whatever it was."""
    async with (
        serving(board(view()), options()) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://{HOST}:{server.port}/events", params={"since": since}) as answer,
    ):
        assert (answer.status, await answer.text()) == (400, "?since takes the id of an event: a whole number from 0\n")


async def test_since_gives_a_list() -> None:
    """The JSON form says what is newer, the last id to ask from next, and whether some were missed."""
    seen = board(view(), events=(event(8), event(9)))
    async with serving(seen, options()) as server, aiohttp.ClientSession() as session:

        async def ask(since: int) -> tuple[list[int], int, bool]:
            async with session.get(f"http://{HOST}:{server.port}/events?since={since}") as answer:
                said = await answer.json()
                return [one["id"] for one in said["events"]], said["last_id"], said["missed"]

        assert await ask(8) == ([9], 9, False)
        assert await ask(9) == ([], 9, False)
        assert await ask(3) == ([8, 9], 9, True)
        assert await ask(0) == ([8, 9], 9, False)


@given(st.integers(0, 200), st.integers(1, 100), st.integers(0, 30))
def test_after_gives_exactly_the_newer_part(seen: int, first: int, count: int) -> None:
    """Whatever was seen: newer events only, in order; an id from the future starts over."""
    ring = tuple(event(number) for number in range(first, first + count))
    fresh, missed = after(ring, seen)
    future = count > 0 and seen > ring[-1].id
    assert [one.id for one in fresh] == [one.id for one in ring if future or one.id > seen]
    assert missed is (future or (0 < seen < first - 1 and count > 0))
