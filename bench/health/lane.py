"""`python -m bench.health.lane [--inside] LANE FOLDER NAME...`: play scenarios one after the other on one stage.

Tells one JSON object a line: {"line": ...} for each judge's answer, or {"name", "why", "for_good"} for what was not
played. The emulated lane boots the machine with cgroup v2, where the same command goes on with --inside.
"""

from __future__ import annotations

import argparse
import compileall
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from bench.health.files import make_big, the_files
from bench.health.pace import EMULATED, HERE
from bench.health.play import play
from bench.health.scenario import Lane, Scenario
from bench.health.scenarios import ALL
from bench.health.stage import Stage
from tests.lab.kit import watcher
from tests.lab.kit.places import CHECKOUT
from tests.lab.vm.kernel import NotAvailableError
from tests.lab.vm.machine import Job, run

_MACHINE_SECONDS: Final = 450.0
_MACHINE_PACE: Final = "10"
_MACHINE_BIG_MIB: Final = 120
Tell = Callable[[Mapping[str, Any]], None]


def main() -> int:
    """Play and tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("lane", type=Lane)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    if options.lane is Lane.EMULATED and not options.inside:
        emulate(options.names, _tell)
        return 0
    watcher.start()
    folder = Path(tempfile.mkdtemp()) if options.inside else options.folder
    chosen = [one for one in ALL if one.name in options.names]
    play_lane(chosen, folder / options.lane, _tell, inside=options.inside)
    return 0


def play_lane(chosen: Sequence[Scenario], folder: Path, tell: Tell, *, inside: bool) -> None:
    """Play on one stage; a stage on which one could not be played is left for a new one."""
    folder.mkdir(parents=True, exist_ok=True)
    for above in (folder, folder.parent):
        above.chmod(0o755)
    files = {"big": make_big(folder, _MACHINE_BIG_MIB)} if inside else the_files(folder.parent)
    left = list(chosen)
    while left:
        try:
            with Stage(folder, EMULATED if inside else HERE) as stage:
                while left:
                    for line in play(stage, left[0], files):
                        tell({"line": line.document()})
                    left.pop(0)
        except Exception as error:  # noqa: BLE001 - nothing stops a run: it is told, and the next one is played
            tell({"name": left.pop(0).name, "why": f"{type(error).__name__}: {error}", "for_good": False})


def emulate(names: Sequence[str], tell: Tell) -> None:
    """Play in the machine, and pass on what it tells."""
    for package in ("guard", "sidecar", "bench", "tests/lab"):
        compileall.compile_dir(CHECKOUT / package, quiet=2)  # the checkout is read-only there
    command = ["python", "-m", "bench.health.lane", "--inside", Lane.EMULATED.value, "/run", *names]
    env = {"LAB_PACE": _MACHINE_PACE, "PYTHONPATH": str(CHECKOUT)}
    job = Job(command=command, env=env, timeout_seconds=_MACHINE_SECONDS)
    try:
        outcome = run(job, _each_line(tell))
    except NotAvailableError as error:
        for name in names:
            tell({"name": name, "why": str(error), "for_good": True})
        return
    if outcome.status != 0:
        tail = (outcome.output or outcome.console)[-2000:]
        tell({"name": "the emulated machine", "why": f"it ended with {outcome.status}: {tail}", "for_good": False})


def _each_line(tell: Tell) -> Callable[[str], None]:
    rest = ""

    def take(chunk: str) -> None:
        nonlocal rest
        *whole, rest = (rest + chunk).split("\n")
        for text in whole:
            if text.startswith("{"):
                tell(json.loads(text))

    return take


def _tell(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _leave(number: int, _frame: FrameType | None) -> None:
    """Unwind, so that everything is cleaned up."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
