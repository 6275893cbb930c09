"""Servers behind `oomguard run` that end before, between and without sidecars."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.guard.hosts import environment
from tests.lab.kit.wait import until
from tests.sidecar.daemons import Daemon

PLAIN = ["sh", "-c", "read line; exit 3"]
PYTHON = [sys.executable, "-c", "input(); raise SystemExit(3)"]


def _server(folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "guard.cli", "run", "--name", "server", "--", *command],
        env=environment(folder),
        stdin=subprocess.PIPE,
    )


@pytest.mark.parametrize("command", [PLAIN, PYTHON], ids=["plain", "python"])
def test_an_end_between_two_sidecars_is_told_with_its_status(tmp_path: Path, command: list[str]) -> None:
    """The next sidecar knows how a server ended that the last one saw start, whatever it was written in; once."""
    with _server(tmp_path, command) as server:
        with Daemon(tmp_path, tmp_path / "log") as daemon:
            until(lambda: "server" in daemon.get("/status")["models"], 30, "the server to be seen")
            daemon.process.kill()
        server.communicate(b"\n", timeout=30)
        assert server.returncode == 3
    with Daemon(tmp_path, tmp_path / "log2") as daemon:
        (incident,) = until(lambda: daemon.get("/incidents")["incidents"], 30, "the end to be found")
        assert (incident["model"], incident["class"]) == ("server", "application_exit")
        assert incident["fields"]["exit_code"] == 3
        until(lambda: not list((tmp_path / "boxes").glob("*.[eb][no][dx]")), 40, "note and box to be removed")
        assert len(daemon.get("/incidents")["incidents"]) == 1


def test_ends_right_after_the_start_are_told(tmp_path: Path) -> None:
    """A server that fails at once, again and again, gives an incident each time, with its status."""
    with Daemon(tmp_path, tmp_path / "log") as daemon:
        for status in range(1, 6):
            with _server(tmp_path, ["sh", "-c", f"exit {status}"]) as server:
                assert server.wait(30) == status
        incidents = until(lambda: _all(daemon, 5), 30, "the incidents")
        assert sorted(one["fields"]["exit_code"] for one in incidents) == [1, 2, 3, 4, 5]
        assert list(daemon.get("/status")["models"]) == ["server"]


def _all(daemon: Daemon, count: int) -> list[dict[str, dict[str, int]]] | None:
    incidents: list[dict[str, dict[str, int]]] = daemon.get("/incidents")["incidents"]
    return incidents if len(incidents) >= count else None


@pytest.mark.slow  # a minute, until nobody can be expected to hand over any more
def test_a_life_that_ended_with_everything_else_is_closed(tmp_path: Path) -> None:
    """Server, runner and sidecar all killed at once leave nothing: the next sidecar closes the life, as unknown."""
    with _server(tmp_path, ["sleep", "60"]) as server:
        with Daemon(tmp_path, tmp_path / "log") as daemon:
            life = until(lambda: _started(daemon), 30, "the server to be seen")
            until(lambda: _is_recorded(tmp_path, life["session"]), 30, "the record to have it")
            daemon.process.kill()
        server.kill()
        os.kill(life["pid"], signal.SIGKILL)
    with Daemon(tmp_path, tmp_path / "log2") as daemon:
        (incident,) = until(lambda: daemon.get("/incidents")["incidents"], 100, "the end to be found")
        assert (incident["model"], incident["class"]) == ("server", "unknown")
        assert incident["life"]["pid"] == life["pid"]


def _started(daemon: Daemon) -> dict[str, Any] | None:
    began = [one["fields"] for one in daemon.get("/events?since=0")["events"] if one["kind"] == "model_started"]
    return began[0] if began else None


def _is_recorded(folder: Path, session: str) -> bool:
    with contextlib.closing(sqlite3.connect(f"file:{folder}/record.sqlite?mode=ro", uri=True)) as record:
        rows = record.execute("SELECT fields FROM events WHERE kind = 'model_started'").fetchall()
    return any(session in fields for (fields,) in rows)
