"""Ends whose exact status only the runner's note tells: a sidecar in another PID namespace, no link to the runner."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.guard.hosts import environment
from tests.lab.kit.wait import until
from tests.sidecar.daemons import Daemon

APART = 'exec unshare --pid --fork --kill-child "$@"'
SERVER = "import guard, sys\nguard.install()\nguard.beat('tokens')\nsys.stdin.readline()"

pytestmark = pytest.mark.lab


@contextlib.contextmanager
def runner_without_link(folder: Path, *unset: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server that hands itself over, under a runner that finds no sidecar but leaves its note."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "boxes").symlink_to(folder / "boxes")
    names = [part for name in unset for part in ("-u", name)]
    server = ["env", *names, f"OOMGUARD_DIR={folder}", sys.executable, "-c", SERVER]
    command = [sys.executable, "-m", "guard.cli", "run", "--name", "server", "--", *server]
    with subprocess.Popen(command, env=environment(elsewhere), stdin=subprocess.PIPE) as process:
        yield process


def _main_process(daemon: Daemon) -> dict[str, Any] | None:
    model = daemon.get("/status")["models"].get("server")
    processes = model["sample"]["processes"] if model and model["sample"] else []
    return processes[0] if processes else None


def _told(daemon: Daemon) -> dict[str, Any] | None:
    return next((dict(one) for one in daemon.get("/incidents")["incidents"] if one["class"] != "unknown"), None)


@pytest.mark.parametrize("unset", [(), ("OOMGUARD_MAIN",)], ids=["one session", "two sessions"])
def test_the_note_of_the_runner_gives_the_status_of_an_end_in_sight(tmp_path: Path, unset: tuple[str, ...]) -> None:
    """A server killed by hand is told by its signal, whatever session its runner gave it; and told once."""
    with Daemon(tmp_path, tmp_path / "log", under=APART) as daemon, runner_without_link(tmp_path, *unset) as runner:
        server = until(lambda: _main_process(daemon), 30, "the server to be seen")
        os.kill(server["life"]["pid"], signal.SIGTERM)
        incident = until(lambda: _told(daemon), 30, "the end to be told")  # a starved runner notes it for a refinement
        assert (incident["class"], incident["fields"]["signal"]) == ("external_kill", "SIGTERM")
        assert runner.wait(30) == -signal.SIGTERM
        until(lambda: not list((tmp_path / "boxes").glob("*.[eb][no][dx]")), 50, "note and box to be removed")
        assert len(daemon.get("/incidents")["incidents"]) == 1
