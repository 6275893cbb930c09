"""A model server as many are: aiohttp, torch on CPU, the forward pass called in the event loop.

    oomguard run -- python -m bench.demo.server --weights FILE --port PORT [--load mapped|copied]

* `GET /health`: "ok". It waits for its turn in the event loop like everything else.
* `POST /generate`: makes eight tokens.
* `POST /leak?mib_per_second=N`: a bug to order: anonymous memory that grows for ever.
* `POST /deadlock`: a bug to order: the event loop waits for a lock whose owner waits for the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from aiohttp import web

import guard
from bench.demo.net import CONTEXT_TOKENS, Shape, Transformer, empty

TOKENS_PER_REQUEST = 8
LEAK_STEPS_PER_SECOND = 10


def load_mapped(path: Path) -> dict[str, torch.Tensor]:
    """Map the file; its pages are read when first touched and can be dropped again by the kernel."""
    return safetensors.torch.load_file(path)


def load_copied(path: Path) -> dict[str, torch.Tensor]:
    """Copy every tensor into anonymous memory, which the kernel cannot drop: costs the size of the file."""
    with safetensors.safe_open(path, "pt") as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dict


LOADERS = {"mapped": load_mapped, "copied": load_copied}


class Engine:
    """The serving loop's view of the model: one token after another."""

    def __init__(self, network: Transformer) -> None:
        self._network = network

    async def generate(self, tokens: list[int]) -> list[int]:
        """Append tokens. Other requests get their turn between two of them."""
        for _ in range(TOKENS_PER_REQUEST):
            with torch.inference_mode():
                scores = self._network(torch.tensor(tokens[-CONTEXT_TOKENS:]))
            tokens.append(int(scores.argmax()))
            guard.beat("tokens")
            await asyncio.sleep(0)
        return tokens[-TOKENS_PER_REQUEST:]


def leak_for_ever(mib_per_second: float) -> None:
    """Keep what it allocates, and touch it, so that it is memory and not only address space."""
    kept: list[bytearray] = []
    step_bytes = int(mib_per_second * (1 << 20) / LEAK_STEPS_PER_SECOND)
    while True:
        kept.append(bytearray(b"\1") * step_bytes)
        time.sleep(1 / LEAK_STEPS_PER_SECOND)


async def deadlock() -> None:
    """Block the event loop for good: two owners, each waiting for what the other has."""
    loop = asyncio.get_running_loop()
    lock = threading.Lock()
    owned = threading.Event()

    def owner() -> None:
        with lock:
            owned.set()
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()

    threading.Thread(target=owner, name="owner", daemon=True).start()
    owned.wait()
    with lock:
        raise AssertionError("the lock came free")


async def tell_turns(_: web.Application) -> None:
    """Let the sidecar know that the serving loop turns, also while nobody asks for anything."""

    def turn() -> None:
        guard.beat("loop")
        loop.call_later(0.5, turn)

    loop = asyncio.get_running_loop()
    turn()


def application(engine: Engine) -> web.Application:
    """The routes."""

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def generate(_: web.Request) -> web.Response:
        return web.json_response({"tokens": await engine.generate([1, 2, 3])})

    async def leak(request: web.Request) -> web.Response:
        rate = float(request.query["mib_per_second"])
        threading.Thread(target=leak_for_ever, args=(rate,), name="leak", daemon=True).start()
        return web.Response(text="leaking\n")

    async def lock_up(_: web.Request) -> web.Response:
        # Answer first, then lock up.
        asyncio.get_running_loop().call_later(0.05, lambda: asyncio.ensure_future(deadlock()))
        return web.Response(text="locking up\n")

    app = web.Application()
    app.on_startup.append(tell_turns)
    app.add_routes(
        [
            web.get("/health", health),
            web.post("/generate", generate),
            web.post("/leak", leak),
            web.post("/deadlock", lock_up),
        ]
    )
    return app


def main() -> None:
    """Load, then serve until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--load", choices=sorted(LOADERS), default="mapped")
    arguments = parser.parse_args()
    network = empty(Shape())
    network.load_state_dict(LOADERS[arguments.load](arguments.weights), assign=True)
    web.run_app(application(Engine(network)), host="127.0.0.1", port=arguments.port, print=None)


if __name__ == "__main__":
    main()
