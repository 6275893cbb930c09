"""A real daemon in a process of its own, and small models that hand over to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from tests.lab.kit.ports import free_port
from tests.lab.kit.wait import until

CHECKOUT = Path(__file__).parents[2]


def _environment(extra: dict[str, str]) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("OOMGUARD")}
    return {**ours, "PYTHONPATH": str(CHECKOUT), **extra}


class Daemon:
    """`sidecar` on a directory. Leaving the context stops it. `under` is what a shell does around it."""

    def __init__(self, folder: Path, log: Path, *flags: str, port: int | None = None, under: str = 'exec "$@"') -> None:
        self.port = free_port() if port is None else port
        self.log = log
        command = [sys.executable, "-m", "sidecar.cli", "sidecar", "--dir", str(folder)]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                ["sh", "-c", under, "sh", *command, "--listen", f"127.0.0.1:{self.port}", *flags],
                stderr=output,
                env=_environment({}),
                cwd=CHECKOUT,
            )

    def __enter__(self) -> Self:
        """Wait until it answers."""
        try:
            until(self._ready, 30, "the daemon to answer")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM and give the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def get(self, path: str, *, program: str = "test/1") -> Any:  # noqa: ANN401 - JSON
        """Ask for a JSON page, as a client of this name."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Accept": "application/json", "User-Agent": program})
            return json.load(connection.getresponse())

    def text(self, path: str) -> str:
        """Ask for a page of plain text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read().decode()

    def events(self) -> list[dict[str, Any]]:
        """Give what it logged, one mapping a line."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError):
            return bool(self.get("/sidecar/readyz")["passed"])
        return False


@contextlib.contextmanager
def model(folder: Path, name: str, body: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python code with the guard installed; a line on its input lets it go on."""
    code = f"import os, sys, guard\nguard.install()\n{body}"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=_environment({"OOMGUARD_DIR": str(folder), "OOMGUARD_NAME": name}),
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=CHECKOUT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def let_go(process: subprocess.Popen[bytes]) -> int:
    """Let a model go on and wait for its end."""
    process.communicate(b"\n", timeout=30)
    return process.returncode
