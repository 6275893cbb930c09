"""A real server in a process of its own, with an adapter and with the other end of the guard's socket in the test."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from guard.link.protocol import Pressure
from guard.model import BoxState
from tests.guard.hosts import boxes, environment
from tests.guard.sidecar_socket import SidecarSocket, Taken, listening
from tests.lab.kit.wait import until

UVICORN = """
import asyncio, os, socket, sys
from pathlib import Path
GATE = Path({gate!r})

async def parts():
    yield b"first "
    while not GATE.exists():
        await asyncio.sleep(0.01)
    yield b"second"

{app}

import uvicorn
config = uvicorn.Config(app, log_level="critical", lifespan="auto", timeout_graceful_shutdown=2)
uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
"""


@dataclass
class Served:
    """A running server."""

    address: tuple[str, int]
    process: subprocess.Popen[bytes]
    shared: Path
    gate: Path
    sidecar: SidecarSocket
    _taken: Taken | None = None

    def get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Ask once; status, headers in lower case, body."""
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def answers(self) -> bool:
        """Whether it is up."""
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    @contextmanager
    def stream(self, path: str) -> Iterator[http.client.HTTPResponse]:
        """Ask, and read the answer as it comes."""
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        try:
            connection.request("GET", path)
            yield connection.getresponse()
        finally:
            connection.close()

    def press(self, level: str, path: str, status: int) -> None:
        """Tell the guard a level, and wait until the server acts on it."""
        if self._taken is None:
            self._taken = self.sidecar.accept()
        self._taken.send(Pressure(level, f"the test says {level}"))
        until(lambda: self.get(path)[0] == status, 30, f"{path} to answer {status}")

    def beats(self) -> dict[str, int]:
        """Beats of all its boxes, summed by name."""
        found: dict[str, int] = {}
        for box in self.boxes():
            for beat in box.beats:
                found[beat.name] = found.get(beat.name, 0) + beat.count
        return found

    def boxes(self) -> list[BoxState]:
        """Its black boxes."""
        return boxes(self.shared)


@contextmanager
def served(shared: Path, app: str, template: str = UVICORN) -> Iterator[Served]:
    """Serve an application until the end of the block; it must end by SIGINT in order."""
    listener = socket.create_server(("127.0.0.1", 0))
    gate = shared / "gate"
    script = shared / "app.py"
    script.write_text(template.format(app=app, gate=str(gate)))
    said = shared / "said.txt"  # no pipe: whoever the server leaves behind would hold it open
    with listening(shared) as sidecar:
        with listener, said.open("w") as output:
            address = listener.getsockname()[:2]
            process = subprocess.Popen(
                [sys.executable, str(script), str(listener.fileno())],
                env=environment(shared, {"OOMGUARD_NAME": "llm", "OOMGUARD_FENCE": ""}),
                pass_fds=[listener.fileno()],
                stderr=output,
                start_new_session=True,
            )
        with process:
            server = Served(address, process, shared, gate, sidecar)
            try:
                until(lambda: process.poll() is not None or server.answers(), 120, "the server")
                yield server
            finally:
                if process.poll() is None:
                    os.kill(process.pid, signal.SIGINT)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                sys.stderr.write(said.read_text())
