"""Relief on a real kernel: a server that would be killed gives memory back in time, and the sidecar tells of it."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from typing import Any

import pytest

from tests.lab.cases.stage import MODEL_UID, OOMGUARD, Stage
from tests.lab.kit.cgroups import MIB, Limits
from tests.lab.kit.namespaces import Apart
from tests.lab.kit.offer import offer
from tests.lab.kit.wait import until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(offer().mode is None, reason=offer().reason),
]

SERVER = """
import os, socket, threading, time
import guard

cache, lock = [], threading.Lock()
heard = socket.socket(socket.AF_UNIX)
heard.connect(os.environ["MEMORY_PRESSURE_WATCH"])

@guard.on_pressure("warning", cooldown_seconds=3)
def drop(notice):
    with lock:
        cache.clear()

def listen():
    heard.recv(1)
    open(os.environ["EVENT_FILE"], "w").close()
threading.Thread(target=listen, daemon=True).start()

while True:
    with lock:
        cache.append(b"x" * (2 << 20))
    time.sleep(0.1)
"""


def _relieved(stage: Stage) -> list[dict[str, Any]]:
    try:
        with closing(sqlite3.connect(f"file:{stage.shared}/record.sqlite?mode=ro", uri=True)) as record:
            rows = record.execute("SELECT fields FROM events WHERE kind = 'relieved' ORDER BY n").fetchall()
    except sqlite3.OperationalError:  # it is only being made
        return []
    return [json.loads(row[0]) for row in rows]


def test_a_server_that_grows_is_relieved_and_lives() -> None:
    """At 20 MiB/s under 160 MiB it would be killed in eight seconds; told in time it lives through three rounds."""
    with Stage() as stage, stage.group.child("model", Limits(memory_max_bytes=160 * MIB)) as group:
        event = stage.shared / "event"
        until((stage.shared / "pressure.sock").exists, 30, "the sidecar to offer its pressure socket")
        with (stage.folder / "model.log").open("wb") as output:
            runner = group.spawn(
                [OOMGUARD, "run", "--", sys.executable, "-c", SERVER],
                apart=Apart(uid=MODEL_UID, pid_namespace=False, reachable=(str(stage.shared),)),
                env={"OOMGUARD_DIR": str(stage.shared), "OOMGUARD_NAME": "model", "EVENT_FILE": str(event)},
                output=output,
            )
        log = stage.folder / "model.log"
        until(lambda: len(_relieved(stage)) >= 3 or runner.poll() is not None, 90, "three rounds of relief")
        assert runner.poll() is None, log.read_text()
        rounds = _relieved(stage)
        assert stage.get("/incidents")["incidents"] == []
        assert {(one["action"], one["said"]) for one in rounds} == {("__main__.drop", "")}
        assert all(one["anon_freed_bytes"] > 20 * MIB for one in rounds)
        assert event.exists(), "a program without the guard heard of it as well"
        assert not stage.complaints()
