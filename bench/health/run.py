"""One whole run: the lanes beside each other, each a process of its own, and what they tell.

Nothing stops a run: what could not be played is told with its reason.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.health.line import Line
from bench.health.priority import put_first
from bench.health.scenario import Lane, Scenario
from tests.lab.kit.places import CHECKOUT, PYTHON

_LEAVE_SECONDS = 60.0


@dataclass(slots=True)
class Run:
    """What one whole run gave. Unplayed: by scenario or lane, why; `unplayable` for what this machine cannot play."""

    lines: list[Line] = field(default_factory=list)
    unplayed: dict[str, str] = field(default_factory=dict)
    unplayable: dict[str, str] = field(default_factory=dict)

    @property
    def wrong(self) -> list[Line]:
        """The wrong answers of a sidecar."""
        return [line for line in self.lines if line.wrong_of_ours]

    def take(self, told: dict[str, Any]) -> str:
        """Take what a lane tells; returns the row to show."""
        if "line" in told:
            line = Line.read(told["line"])
            self.lines.append(line)
            return str(line)
        (self.unplayable if told["for_good"] else self.unplayed)[told["name"]] = told["why"]
        return f"{told['name']}: not played: {told['why']}"


def play_all(chosen: Sequence[Scenario], folder: Path, show: Callable[[str], None]) -> Run:
    """Play them all; `show` gets each row as it comes."""
    told: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    run = Run()
    with contextlib.ExitStack() as stack:
        lanes = sorted({one.lane for one in chosen})
        for lane in lanes:
            names = [one.name for one in chosen if one.lane is lane]
            process = stack.enter_context(_lane(lane, folder, names))
            threading.Thread(target=_listen, args=(process, lane, told), daemon=True).start()
        ended = 0
        while ended < len(lanes):
            one = told.get()
            if one is None:
                ended += 1
            else:
                show(run.take(one))
    return run


@contextlib.contextmanager
def _lane(lane: Lane, folder: Path, names: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a lane; it cleans up after itself when it is asked to leave."""
    command = [PYTHON, "-m", "bench.health.lane", lane.value, str(folder), *names]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        put_first(process.pid)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(_LEAVE_SECONDS)


def _listen(process: subprocess.Popen[str], lane: Lane, told: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    assert process.stdout is not None
    for text in process.stdout:
        told.put(json.loads(text))
    if status := process.wait():
        told.put({"name": f"the lane {lane.value}", "why": f"it ended with {status}", "for_good": False})
    told.put(None)
