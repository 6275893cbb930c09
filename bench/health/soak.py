"""`python -m bench.health.soak [--minutes M] [--seed N]`: scenarios at random on two sidecars that live all the time.

No answer may be wrong, and neither sidecar's memory may grow by more than `MOST_GROWTH_MIB` from the middle to the end.
Scenarios that kill the sidecars are left out: a new one begins small, which would hide any growth. Figures are printed
and written to build/bench/soak.json. Exit status: 0 all right, 1 a wrong answer, growth, or a scenario that was not
played, 2 the rights are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from bench.demo.stage import missing_rights
from bench.health.__main__ import FOLDER, RESULTS, leave, say
from bench.health.files import make_files, the_files
from bench.health.line import HEAD, Line
from bench.health.play import play
from bench.health.priority import put_first
from bench.health.scenario import Lane, Scenario
from bench.health.scenarios import playable
from bench.health.stage import Stage
from tests.lab.kit import watcher
from tests.lab.kit.cgroups import sweep

_LEAST_SECONDS: Final = 5.0
MOST_GROWTH_MIB: Final = 1.0
"""In the second half; in the first rings and caches fill. As in bench.sidecar."""


@dataclass(slots=True)
class Soak:
    """What a soak gave. `memory` has (minutes since the start, MiB resident) of each sidecar."""

    seed: int
    lines: list[Line] = field(default_factory=list)
    unplayed: list[str] = field(default_factory=list)
    memory: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def wrong(self) -> list[Line]:
        """The wrong answers of a sidecar."""
        return [line for line in self.lines if line.wrong_of_ours]

    @property
    def grew(self) -> list[str]:
        """The sidecars whose memory is not flat."""
        return [name for name, points in self.memory.items() if _figures(points)["growth_mib"] > MOST_GROWTH_MIB]

    def document(self) -> dict[str, Any]:
        """Give it as JSON."""
        return {
            "seed": self.seed,
            "scenarios": len({line.scenario for line in self.lines}),
            "answers": sum(line.judge != "A" for line in self.lines),
            "wrong": [line.document() for line in self.wrong],
            "wrong_plain": sum(line.judge == "A" and not line.right for line in self.lines),
            "unplayed": self.unplayed,
            "grew": self.grew,
            "memory": {name: _figures(points) for name, points in self.memory.items()},
        }


def _figures(points: Sequence[tuple[float, float]]) -> Mapping[str, Any]:
    """Give first, middle, last and largest in MiB, and the growth from the middle to the end."""
    sizes = [mib for _, mib in points]
    middle = next(mib for minutes, mib in points if minutes >= points[-1][0] / 2)
    return {
        "first_mib": sizes[0],
        "middle_mib": middle,
        "last_mib": sizes[-1],
        "largest_mib": max(sizes),
        "growth_mib": round(sizes[-1] - middle, 2),
        "points": points,
    }


def soak(stage: Stage, deck: Sequence[Scenario], seconds: float, seed: int) -> Soak:
    """Play out of the deck at random for so long, at least one."""
    found, chance, began = Soak(seed), random.Random(seed), time.monotonic()
    files = the_files(stage.folder.parent)
    while not found.lines or time.monotonic() - began < seconds:
        scenario = _another(chance, deck)
        try:
            lines = play(stage, scenario, files)
        except (OSError, AssertionError) as error:
            found.unplayed.append(f"{scenario.name}: {error}")
            say(f"not played: {found.unplayed[-1]}")
            continue
        for line in lines:
            say(str(line))
        found.lines += lines
        for name, pid in zip(stage.sidecars, stage.sidecar_pids(), strict=True):
            minutes = (time.monotonic() - began) / 60
            found.memory.setdefault(name, []).append((round(minutes, 2), _resident_mib(pid)))
    return found


def _another(chance: random.Random, deck: Sequence[Scenario]) -> Scenario:
    """Draw one; a well server that serves already is watched for longer or shorter."""
    scenario = chance.choice(deck)
    if not scenario.healthy or scenario.lane is Lane.LOAD:
        return scenario
    return replace(scenario, seconds=chance.uniform(_LEAST_SECONDS, scenario.seconds))


def _resident_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    kib = next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS:"))
    return round(int(kib) / 1024, 2)


def main() -> int:
    """Soak, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None, help="play the same again")
    options = parser.parse_args()
    if missing := missing_rights():
        say(f"the soak needs root, cgroups and namespaces: {missing}")
        return 2
    signal.signal(signal.SIGTERM, leave)
    put_first(os.getpid())
    sweep()
    watcher.start()
    make_files(FOLDER)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    say(f"seed {seed}\n{HEAD}")
    deck = [one for one in playable() if one.lane is not Lane.EMULATED and one.sidecars_live]
    folder = FOLDER / "soak"
    folder.mkdir(exist_ok=True)
    with Stage(folder) as stage:
        found = soak(stage, deck, options.minutes * 60, seed)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "soak.json").write_text(json.dumps(found.document(), indent=1) + "\n")
    for name, points in found.memory.items():
        figures = _figures(points)
        shown = {key: value for key, value in figures.items() if key != "points"}
        say(f"sidecar {name.upper()}: {shown}")
    say(f"seed {seed}: {len(found.lines)} answers, {len(found.wrong)} of a sidecar wrong; grew: {found.grew or 'none'}")
    return 1 if found.wrong or found.grew or found.unplayed else 0


if __name__ == "__main__":
    sys.exit(main())
