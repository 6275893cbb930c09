"""A model server to try oomguard on: embeds text with a table that it maps from disk, as real servers map weights.

GET /health          200 once the table is there
GET /embed?text=...  the mean of the rows of the text's words, as JSON
GET /leak?mib=64     allocates that much and keeps it: watch the warning, then the verdict
GET /hang            the serving loop stops for good: watch liveness fail

Standard library only. MODEL_MIB is the size of the table (default 64), MODEL_FILE where it lies, PORT where to serve.
"""

from __future__ import annotations

import array
import json
import mmap
import os
import threading
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

DIMENSIONS = 256
ROW_BYTES = DIMENSIONS * 4
MIB = 1 << 20


def make_table(path: Path, size_bytes: int) -> None:
    """Write a table of random float32 rows once, by a temporary name, so that a half-written one is never used."""
    if path.exists() and path.stat().st_size == size_bytes:
        return
    part = path.with_suffix(".part")
    with part.open("wb") as out:
        for _ in range(size_bytes // MIB):
            # Random exponents would give NaN: two random bytes below a fixed sign and exponent lie in [1, 2).
            block = bytearray(os.urandom(MIB))
            block[2::4] = bytes(b & 0x7F | 0x80 for b in block[2::4])
            block[3::4] = b"\x3f" * (MIB // 4)
            out.write(block)
    part.rename(path)


class Model:
    """The table, mapped; its pages come and go with the page cache of the container."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._rows = len(self._map) // ROW_BYTES
        self._leaked: list[bytearray] = []

    def embed(self, text: str) -> list[float]:
        """Give the mean row of the words of `text`; an empty text has the row of the empty word."""
        words = text.split() or [""]
        total = [0.0] * DIMENSIONS
        for word in words:
            at = zlib.crc32(word.encode()) % self._rows * ROW_BYTES
            row = array.array("f", self._map[at : at + ROW_BYTES])
            total = [a + b for a, b in zip(total, row, strict=True)]
        return [x / len(words) for x in total]

    def leak(self, mib: int) -> int:
        """Allocate `mib` MiB, touch every page, keep it. Returns what is kept in all, in MiB."""
        self._leaked.append(bytearray(b"\x01") * (mib * MIB))
        return sum(map(len, self._leaked)) // MIB


class Handler(BaseHTTPRequestHandler):
    """Routes; one request at a time, so that a request that hangs hangs the server."""

    model: Model

    def do_GET(self) -> None:
        """Answer one request."""
        url = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        if url.path == "/health":
            self._answer(200, {"status": "ok"})
        elif url.path == "/embed":
            self._answer(200, {"embedding": self.model.embed(query.get("text", ""))})
        elif url.path == "/leak" and query.get("mib", "").isdecimal():
            self._answer(200, {"leaked_mib": self.model.leak(int(query["mib"]))})
        elif url.path == "/hang":
            threading.Event().wait()
        else:
            self._answer(404, {"error": "try /health, /embed?text=hello, /leak?mib=64 or /hang"})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    """Make the table, map it, serve."""
    path = Path(os.environ.get("MODEL_FILE", "/tmp/table.f32"))  # noqa: S108 - the container's own /tmp
    make_table(path, int(os.environ.get("MODEL_MIB", "64")) * MIB)
    Handler.model = Model(path)
    HTTPServer(("", int(os.environ.get("PORT", "8000"))), Handler).serve_forever()


if __name__ == "__main__":
    main()
