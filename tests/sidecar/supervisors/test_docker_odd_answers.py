"""What listens on the socket is no container engine, or not in order."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.supervisors.docker import DockerSource
from sidecar.supervisors.values import Trouble


async def _asked(path: Path, body: bytes, said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said or b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        writer.write(b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, path)
    async with server:
        source = DockerSource(
            f"unix://{path}", SystemClock(), own_id=None, directory="/shared", wanted=lambda _id, _name: False
        )
        await asyncio.wait_for(source.look(lambda _containers, _lacking: None), 30)


@pytest.mark.parametrize(
    "body", [b'{"ApiVersion": "1.41", "Components": 5}', b'{"ApiVersion": "1.41", "Components": null}', b"[]", b"7"]
)
def test_json_of_another_shape(body: bytes, tmp_path: Path) -> None:
    """JSON that no engine gives is trouble in words, for daemon and doctor, and no fault of ours."""
    with pytest.raises(Trouble, match="not understood"):
        asyncio.run(_asked(tmp_path / "engine.sock", body, b""))


def test_no_http(tmp_path: Path) -> None:
    """Bytes that are no HTTP are told in one short line."""
    with pytest.raises(Trouble) as caught:
        asyncio.run(_asked(tmp_path / "engine.sock", b"", b"\x01\xfe\n" * 500))
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) <= 200


def test_an_answer_without_end(tmp_path: Path) -> None:
    """An answer that goes on for ever is given up after some MiB."""
    path = tmp_path / "engine.sock"
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n[")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"0," * (1 << 19))
                await writer.drain()
                sent += 1 << 20

    async def ask() -> None:
        async with await asyncio.start_unix_server(flood, path):
            source = DockerSource(
                f"unix://{path}", SystemClock(), own_id=None, directory="/shared", wanted=lambda _id, _name: False
            )
            await asyncio.wait_for(source.look(lambda _containers, _lacking: None), 60)

    with pytest.raises(Trouble, match="longer than"):
        asyncio.run(ask())
    assert sent < 32 << 20
