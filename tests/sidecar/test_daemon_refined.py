"""Verdicts that a real daemon refines: a runner that notes the end late, as one does that is starved of CPU."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.lab.kit.wait import until
from tests.sidecar.daemons import Daemon
from tests.sidecar.test_daemon_end_notes import APART, runner_without_link

pytestmark = [pytest.mark.lab, pytest.mark.timeout(150)]


def _killed_behind_a_stopped_runner(daemon: Daemon, runner: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Kill the server while its runner cannot note that, and give the first verdict."""
    server = until(lambda: _process(daemon), 30, "the server to be seen")
    runner.send_signal(signal.SIGSTOP)
    os.kill(server["life"]["pid"], signal.SIGTERM)
    (incident,) = until(lambda: daemon.get("/incidents")["incidents"], 30, "the end to be told")
    assert (incident["class"], incident["history"], incident["counted_as"]) == ("unknown", [], None)
    return dict(incident)


def _process(daemon: Daemon) -> dict[str, Any] | None:
    model = daemon.get("/status")["models"].get("server")
    processes = model["sample"]["processes"] if model and model["sample"] else []
    return processes[0] if processes else None


def _is_recorded(folder: Path, incident_id: str) -> bool:
    with contextlib.closing(sqlite3.connect(f"file:{folder}/record.sqlite?mode=ro", uri=True)) as record:
        return bool(record.execute("SELECT 1 FROM evidence WHERE id=?", (incident_id,)).fetchall())


def _refined(daemon: Daemon) -> dict[str, Any] | None:
    (incident,) = daemon.get("/incidents")["incidents"]
    return dict(incident) if incident["class"] != "unknown" else None


def _counted(daemon: Daemon) -> dict[str, int]:
    """Give what the metric says of each cause that was counted."""
    found = re.findall(
        r'^oomguard_restarts_total\{cause="(\w+)",model="server"\} (\d+)', daemon.text("/metrics"), re.MULTILINE
    )
    return {cause: int(count) for cause, count in found if int(count)}


def test_a_late_note_refines_the_verdict_before_the_end_is_counted(tmp_path: Path) -> None:
    """Unknown first, then known by its signal: the same incident, with its history, an event, and one count."""
    with Daemon(tmp_path, tmp_path / "log", under=APART) as daemon, runner_without_link(tmp_path) as runner:
        first = _killed_behind_a_stopped_runner(daemon, runner)
        runner.send_signal(signal.SIGCONT)
        incident = until(lambda: _refined(daemon), 30, "the verdict to be refined")
        assert (incident["id"], incident["class"]) == (first["id"], "external_kill")
        assert [one["class"] for one in incident["history"]] == ["unknown", "external_kill"]
        assert incident["history"][1]["because"]
        (event,) = [one for one in daemon.get("/events?since=0")["events"] if one["kind"] == "verdict_refined"]
        assert (event["fields"]["incident"], event["fields"]["from_class"]) == (first["id"], "unknown")
        until(lambda: _counted(daemon) == {"external_kill": 1}, 40, "the end to be counted")


def test_the_next_sidecar_refines_what_the_last_one_told(tmp_path: Path) -> None:
    """The sidecar died after its first verdict: the next has the evidence, and takes in the note that came since."""
    with runner_without_link(tmp_path) as runner:
        with Daemon(tmp_path, tmp_path / "log", under=APART) as daemon:
            first = _killed_behind_a_stopped_runner(daemon, runner)
            until(lambda: _is_recorded(tmp_path, first["id"]), 30, "the record to have it")
            daemon.process.kill()
            daemon.process.wait()
        runner.send_signal(signal.SIGCONT)
        assert runner.wait(30) == -signal.SIGTERM
        with Daemon(tmp_path, tmp_path / "log2", under=APART) as daemon:
            incident = until(lambda: _refined(daemon), 40, "the verdict to be refined")
            assert (incident["id"], incident["fields"]["signal"]) == (first["id"], "SIGTERM")
            until(lambda: _counted(daemon) == {"external_kill": 1}, 40, "the end to be counted")
            assert len(daemon.get("/incidents")["incidents"]) == 1
