"""systemd's memory pressure protocol as the sidecar offers it, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import stat
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path
from queue import Queue

import pytest

from guard.link.protocol import Pressure
from guard.pressure_watch import PressureWatch, plan
from guard.relief import Relief
from sidecar.pressure_socket import NAME, PressureSocket


@contextlib.asynccontextmanager
async def offered(folder: Path) -> AsyncIterator[PressureSocket]:
    """Offer it in a folder."""
    made = PressureSocket(str(folder / NAME))
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def _until_told(made: PressureSocket, clients: int) -> None:
    async with asyncio.timeout(30):
        while made.tell() < clients:  # noqa: ASYNC110 - the server says nothing of a client that has come
            await asyncio.sleep(0.01)


async def test_every_client_gets_an_event(tmp_path: Path) -> None:
    """A byte for each client and event; any user may connect; what clients write is thrown away."""
    async with offered(tmp_path) as made:
        assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o666
        clients = [await asyncio.open_unix_connection(str(tmp_path / NAME)) for _ in range(3)]
        clients[0][1].write(b"some 100000 2000000\0")
        await _until_told(made, 3)
        for reader, _ in clients:
            assert (await asyncio.wait_for(reader.read(1), 30)) == b"\n"
        for _, writer in clients:
            writer.close()
    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_a_client_that_reads_nothing_holds_up_nobody(tmp_path: Path) -> None:
    """It is passed over once its buffer is full; others still hear."""
    async with offered(tmp_path) as made:
        deaf_reader, deaf = await asyncio.open_unix_connection(str(tmp_path / NAME))
        deaf_reader._transport.pause_reading()  # type: ignore[attr-defined]
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / NAME))
        await _until_told(made, 2)
        for _ in range(100_000):
            if made.tell() < 2:
                break
            await reader.read(1)
        else:
            pytest.fail("the deaf client was never passed over")
        assert made.tell() == 1
        deaf.close()
        writer.close()


async def test_a_flood_is_hung_up_on(tmp_path: Path) -> None:
    """A client that writes without end costs a few kilobytes; there is room for so many clients and no more."""
    async with offered(tmp_path) as made:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / NAME))
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                writer.write(b"x" * 4096)
                await writer.drain()
            await asyncio.wait_for(reader.read(), 30)
        writer.close()
        clients = [await asyncio.open_unix_connection(str(tmp_path / NAME)) for _ in range(70)]
        ends = [asyncio.create_task(one.read()) for one, _ in clients]
        async with asyncio.timeout(30):
            for end in islice(asyncio.as_completed(ends), 6):
                await end
        await _until_told(made, 64)
        for task in ends:
            task.cancel()
        for _, writer in clients:
            writer.close()


async def test_a_stale_socket_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    """A sidecar that was killed leaves its socket behind; a second one beside a living one offers nothing."""
    async with offered(tmp_path):
        second = PressureSocket(str(tmp_path / NAME))
        with pytest.raises(OSError, match="another sidecar listens"):
            await second.start()
        os.link(tmp_path / NAME, tmp_path / "kept")
    os.rename(tmp_path / "kept", tmp_path / NAME)  # noqa: PTH104 - nobody listens on it any more
    async with offered(tmp_path) as made:
        _, writer = await asyncio.open_unix_connection(str(tmp_path / NAME))
        await _until_told(made, 1)
        writer.close()


async def test_the_guards_own_watch_understands_it(tmp_path: Path) -> None:
    """What the sidecar offers and what the guard listens to are one protocol."""
    async with offered(tmp_path) as made:
        write = base64.b64encode(b"some 100000 2000000\0").decode()
        found = plan({"MEMORY_PRESSURE_WATCH": str(tmp_path / NAME), "MEMORY_PRESSURE_WRITE": write}, "/elsewhere")
        assert found is not None
        heard: Queue[Pressure] = Queue()
        relief = Relief(lambda _effect: None)
        relief.add(heard.put, "all", None, 0.0)
        watch = PressureWatch(found, relief)
        watch.start()
        await _until_told(made, 1)
        notice = await asyncio.to_thread(heard.get, timeout=30)
        assert notice.level == "warning"
        watch.close()
        relief.calm()
