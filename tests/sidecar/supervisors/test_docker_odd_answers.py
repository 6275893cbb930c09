"""What listens on the socket is no container engine, or not in order."""

from __future__ import annotations

import asyncio
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
