"""One life of the model server: started by `oomguard run` in a cgroup of its own, watched through a pidfd."""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import signal
import subprocess
import threading
import time
from pathlib import Path

from bench.demo.probes import TIMEOUT_SECONDS, request
from tests.lab.kit.cgroups import Cgroup
from tests.lab.kit.namespaces import served_pid
from tests.lab.kit.wait import TooLateError, until

GRACE_SECONDS = 2


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


class Life:
    """The server from its start to its death. `died_monotonic_s` is None while it lives."""

    def __init__(self, group: Cgroup, runner: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.group = group
        self.died_monotonic_s: float | None = None
        self._runner = runner
        self._port = port
        self._log = log
        self.pid = until(self._child_of_runner, 120, "oomguard run to start the server")
        self._pidfd = os.pidfd_open(self.pid)
        threading.Thread(target=self._note_death, daemon=True).start()

    def _child_of_runner(self) -> int | None:
        if self._runner.poll() is not None:
            raise DemoError(f"oomguard run ended with status {self._runner.returncode}:\n{self.tail()}")
        return served_pid(self._runner.pid)

    def _note_death(self) -> None:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.poll()
        self.died_monotonic_s = time.monotonic()
        os.close(self._pidfd)

    @property
    def alive(self) -> bool:
        """Whether the server process lives."""
        return self.died_monotonic_s is None

    def wait_ready(self) -> None:
        """Wait until `/health` answers; DemoError when the server dies instead."""
        until(self._ready, 120, "the server to answer /health", pause_seconds=0.1)

    def _ready(self) -> bool:
        if not self.alive:
            raise DemoError(f"the server died while it started:\n{self.tail()}")
        try:
            status, _ = request(self._port, "GET", "/health", TIMEOUT_SECONDS)
        except OSError:
            return False
        return status == http.client.OK

    def post(self, path: str, timeout: float = 5.0) -> None:
        """Send a request whose answer does not matter."""
        request(self._port, "POST", path, timeout)

    def begin_load(self) -> None:
        """Ask for tokens, one request after another, until the server is gone."""

        def ask() -> None:
            while self.alive:
                try:
                    self.post("/generate", 60.0)
                except (OSError, http.client.HTTPException):
                    time.sleep(0.1)

        threading.Thread(target=ask, daemon=True).start()

    def stop(self) -> None:
        """End it as the kubelet does: SIGTERM to the container's first process, and SIGKILL after the grace."""
        self._runner.send_signal(signal.SIGTERM)
        with contextlib.suppress(TooLateError):
            until(lambda: not self.alive, GRACE_SECONDS, "the server to end by itself")
        if self.alive:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            until(lambda: not self.alive, 120, "the server to end after SIGKILL")

    def own_memory_bytes(self) -> int:
        """Anonymous memory of the group: what the kernel cannot drop."""
        lines = self.group.file("memory.stat").read_text().splitlines()
        stat = dict(line.split() for line in lines)
        return int(stat["anon"] if "anon" in stat else stat["total_rss"])

    def tail(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
