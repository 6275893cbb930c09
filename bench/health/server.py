"""The server that is judged: one asyncio loop, and faults to order.

    oomguard run -- python -m bench.health.server --port PORT [--weights FILE] [--workers N [--through]]
                                                  [--load NAME --checkpoints FOLDER --go FILE]

* `GET /health`: 200, by way of the event loop like everything else; with --through by way of a free worker too.
* `GET /fault/NAME`: answers, then does it. The names are in FAULTS.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import hashlib
import mmap
import os
import random
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import guard

MIB: Final = 1 << 20
FOR_EVER: Final = 10.0**6
COMPILE_SECONDS: Final = 12.0
THREADS: Final = 8
TOKEN_MIB: Final = 5
LOADED: Final[dict[str, Any]] = {}
"""What a load finds and what it leaves behind, kept as a server keeps its weights."""
WORKER: Final = """
import os, signal, sys, threading, guard
guard.beat("tokens")
for line in sys.stdin:
    if line == "fault\\n":
        os.kill(os.getpid(), signal.SIGSEGV)
    if line == "crash\\n":
        raise RuntimeError("the device is lost")
    if line == "hang\\n":
        threading.Event().wait()
    sys.stdout.write(line)
    sys.stdout.flush()
"""
"""Holds the model for the front end: answers each line with itself."""


class Server:
    """State that faults change."""

    def __init__(self, weights: Path | None, *, through: bool) -> None:
        self.weights = weights
        self.through = through
        self.status = 200
        self.silent = False
        self.workers: list[asyncio.subprocess.Process] = []
        self.free: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()
        self.task: asyncio.Future[None] | None = None
        self.kept: list[bytearray] = []

    async def start_workers(self, count: int) -> None:
        """Start so many workers, all of them free."""
        pipe = asyncio.subprocess.PIPE
        for _ in range(count):
            worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, stdin=pipe, stdout=pipe)
            self.workers.append(worker)
            self.free.put_nowait(worker)

    def tell(self, workers: Iterable[asyncio.subprocess.Process], word: str) -> None:
        """Say something to workers, and await no answer."""
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{word}\n".encode())

    async def _pass_through(self) -> None:
        """Have a free worker answer; one that hangs is never free again, and without a free one the asker waits."""
        worker = await self.free.get()
        while worker.returncode is not None:
            worker = await self.free.get()
        self.tell([worker], "ask")
        assert worker.stdout is not None
        if await worker.stdout.readline():
            self.free.put_nowait(worker)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request of one connection."""
        request = await reader.readuntil(b"\r\n\r\n")
        path = request.split()[1].decode()
        if self.silent:
            await asyncio.sleep(FOR_EVER)
        status = self.status
        if path.startswith("/fault/"):
            asyncio.get_running_loop().call_later(0.05, FAULTS[path.removeprefix("/fault/")], self)
        elif path != "/health":
            status = 404
        elif self.through:
            await self._pass_through()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


def deadlock(_: Server) -> None:
    """Wait for a lock that this thread holds."""
    lock = threading.Lock()
    with lock, lock:
        pass


def spin_with_gil(_: Server) -> None:
    """Loop for ever in Python."""
    while True:
        pass


def spin_without_gil(_: Server) -> None:
    """Loop for ever in C."""
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2**31 - 1)


def block(_: Server) -> None:
    """Do something synchronous in the loop that never comes back."""
    time.sleep(FOR_EVER)


def be_silent(server: Server) -> None:
    """Accept, and never answer again; the loop itself turns."""
    server.silent = True


def fail(server: Server) -> None:
    """Answer 500."""
    server.status = 500


def compile_within(_: Server) -> None:
    """Compile in the loop, as declared."""
    with guard.busy("compile", at_most=COMPILE_SECONDS * 1.5):
        time.sleep(COMPILE_SECONDS)


def compile_past(_: Server) -> None:
    """Compile in the loop, and never come back."""
    with guard.busy("compile", at_most=COMPILE_SECONDS / 2):
        time.sleep(FOR_EVER)


def hold_gil(_: Server) -> None:
    """Load with a call that holds the GIL, as safetensors.torch.load of bytes does; its bytes are counted by nobody."""
    with guard.loading("checkpoint.bin"):
        size = 64 * MIB
        source, target = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
        copy, until = ctypes.PyDLL(None).memcpy, time.monotonic() + COMPILE_SECONDS
        copy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        switch, interval = sys.setswitchinterval, sys.getswitchinterval()
        switch(FOR_EVER)  # one long call would not let go between these either
        while time.monotonic() < until:
            copy(target, source, size)
        switch(interval)


def thrash(server: Server) -> None:
    """Read mapped weights at random from many threads, as a forward pass without the GIL does."""
    assert server.weights is not None
    with server.weights.open("rb") as file:
        weights = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    for seed in range(THREADS):
        threading.Thread(target=_read, args=(weights, seed), daemon=True).start()
    server.task = asyncio.ensure_future(_generate(weights))


async def _generate(weights: memoryview) -> None:
    """Make tokens in the loop, as a server with its forward pass there does; others get their turn between two."""
    places = random.Random(7)
    while True:
        for _ in range(TOKEN_MIB):
            start = places.randrange(0, len(weights) - MIB)
            zlib.crc32(weights[start : start + MIB])
        await asyncio.sleep(0)


def _read(weights: memoryview, seed: int) -> None:
    places = random.Random(seed)
    while True:
        start = places.randrange(0, len(weights) - MIB)
        for _ in range(2):  # used twice, pages are active, and their loss is memory pressure
            zlib.crc32(weights[start : start + MIB])


def thrash_then_deadlock(server: Server) -> None:
    """Thrash, and a second later deadlock the loop."""
    thrash(server)
    asyncio.get_running_loop().call_later(1.0, deadlock, server)


def grow(server: Server) -> None:
    """Hold anonymous memory: MODEL_GROW_MIB of it."""
    server.kept.append(bytearray(b"\1") * (int(os.environ["MODEL_GROW_MIB"]) * MIB))


def flood(server: Server) -> None:
    """Have a neighbour in the same cgroup fill the page cache."""
    assert server.weights is not None
    loop = "import sys\nwhile True:\n with open(sys.argv[1], 'rb', buffering=0) as f:\n  while f.read(1 << 20): pass"
    subprocess.Popen([sys.executable, "-S", "-c", loop, str(server.weights)], env={})


def burn(_: Server) -> None:
    """Have neighbours take every core."""
    for _core in range(2 * (os.cpu_count() or 1)):
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"], env={})


def crash_workers(server: Server) -> None:
    """Let every worker end with an exception; the front end does not look."""
    server.tell(server.workers, "crash")


def fault_workers(server: Server) -> None:
    """Let every worker die of a segmentation fault; the front end does not look."""
    server.tell(server.workers, "fault")


def crash_half(server: Server) -> None:
    """Let half of the workers end with an exception; the others serve on."""
    server.tell(server.workers[::2], "crash")


def hang_workers(server: Server) -> None:
    """Let every worker hang."""
    server.tell(server.workers, "hang")


def hang_half(server: Server) -> None:
    """Let half of the workers hang; the front end goes on asking whoever is free."""
    server.tell(server.workers[::2], "hang")


FAULTS: Final[dict[str, Callable[[Server], None]]] = {
    action.__name__: action
    for action in (
        *(deadlock, spin_with_gil, spin_without_gil, block, be_silent, fail, compile_within, compile_past, hold_gil),
        *(thrash, thrash_then_deadlock, grow, flood, burn),
        *(crash_workers, fault_workers, crash_half, hang_workers, hang_half),
    )
}


def load(name: str, folder: Path, go: Path) -> None:
    """Load a checkpoint the given way, as soon as the judges look on and before anything is served."""
    from bench.preflight import cases, checkpoints  # in a container this file stands alone, and loads nothing

    LOADED["checkpoints"] = checkpoints
    case = cases.case_named(name)
    while not go.exists():
        time.sleep(0.05)
    exec(case.program(str(folder)), LOADED)


async def serve(server: Server, port: int, workers: int) -> None:
    """Serve for ever."""
    await server.start_workers(workers)
    async with await asyncio.start_server(server.answer, "127.0.0.1", port) as listener:
        await listener.serve_forever()


def main() -> None:
    """Load, start the workers, serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--load")
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--go", type=Path)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--through", action="store_true")
    arguments = parser.parse_args()
    if arguments.load:
        load(arguments.load, arguments.checkpoints, arguments.go)
    asyncio.run(serve(Server(arguments.weights, through=arguments.through), arguments.port, arguments.workers))


if __name__ == "__main__":
    main()
