"""`python -m bench.guard [--rounds N]`. Exit status: 0 goals held, 1 one was not."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from bench.sidecar.figures import Figure, Goal, Part
from tests.lab.kit.places import CHECKOUT
from tests.stubs.pretend import PretendCards

RESULT: Final = CHECKOUT / "build" / "bench" / "guard.json"
PEERS: Final = CHECKOUT / "build" / "bench" / "peers"
"""Where `make bench-guard` puts memray, which is no part of the test environment."""
ARMS: Final = ("plain", "guard", "again", "history", "dispatch", "memray")
ALLOCATIONS: Final = ("cuda_allocation", "cpu_allocation")
PATHS: Final = ("torch_load", "load_file", "tensor", "survived_failure")
BLOCKS: Final = 40
"""Turns of every arm within one round."""
ROUNDS: Final = 9
"""Of nine rounds the second least and the second largest bound the median with 96 % confidence."""
UNCHANGED: Final = 1.05

Arm = Mapping[str, float]
Round = Mapping[str, Arm]


def main() -> int:
    """Run the arms by turns, round after round, print a table and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"fresh starts of every arm (default {ROUNDS})")
    parser.add_argument("--out", type=Path, default=RESULT, help="where to write the figures")
    options = parser.parse_args()
    turns = random.Random(1)
    rounds = [_round(turns) for _ in range(options.rounds)]
    parts = (
        Part("allocation", "Allocations of torch, served from its cache (pretend card)", tuple(_allocations(rounds))),
        Part("paths", "What the guard adds to a load, a tensor and a failure", tuple(_paths(rounds))),
        Part("presence", "What it takes to be there", tuple(_presence(rounds))),
    )
    for part in parts:
        sys.stdout.write("\n".join(part.table()) + "\n\n")
    held = not any(part.missed for part in parts)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    document = {"held": held, "rounds": options.rounds, "parts": {part.name: part.document() for part in parts}}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    sys.stdout.write(f"{'every goal held' if held else 'NOT every goal held'}; figures in {options.out}\n")
    return 0 if held else 1


def _round(turns: random.Random) -> Round:
    """Start every arm, have them work by turns, and give the median of each and what else they found."""
    with contextlib.ExitStack() as stack:
        arms = {arm: stack.enter_context(_arm(arm)) for arm in ARMS if arm != "memray" or (PEERS / "memray").exists()}
        able = {arm: json.loads(_hear(process)) for arm, process in arms.items()}
        blocks: dict[str, list[dict[str, float]]] = {name: [] for name in (*ALLOCATIONS, *PATHS)}
        for _ in range(BLOCKS):
            for name, done in blocks.items():
                who = [arm for arm in arms if name in able[arm]]
                done.append({arm: float(_ask(arms[arm], name)) for arm in turns.sample(who, len(who))})
        return {arm: _found(json.loads(_ask(process, "end")), arm, blocks) for arm, process in arms.items()}


def _found(rest: dict[str, float], arm: str, blocks: Mapping[str, Sequence[Arm]]) -> Arm:
    """Add the medians of one arm, its ratios to the plain one and its differences, each within a turn."""
    for name, done in blocks.items():
        if arm in done[0]:
            rest[name] = median(block[arm] for block in done)
            rest[f"{name}_ratio"] = median(block[arm] / block["plain"] for block in done)
            rest[f"{name}_more"] = median(block[arm] - block["plain"] for block in done)
    return rest


@contextlib.contextmanager
def _arm(arm: str) -> Iterator[subprocess.Popen[str]]:
    """Start one arm."""
    with tempfile.TemporaryDirectory(prefix="oomguard-bench-") as folder:
        cards = PretendCards(Path(folder, "cards"), {"gpu0.total": "4G"})
        environment = {
            **cards.environment,
            "OOMGUARD_DIR": folder,
            "PYTHONPATH": os.pathsep.join((str(CHECKOUT), str(PEERS))),
            "PYTHONDONTWRITEBYTECODE": "",  # an installed guard is compiled
            "PYTHONPYCACHEPREFIX": str(PEERS.parent / "pycache"),
        }
        with subprocess.Popen(
            [sys.executable, "-m", "bench.guard.arm", arm],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def _ask(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()
    return _hear(process)


def _hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"{process.args!r} ended early"
    return line


def _allocations(rounds: Sequence[Round]) -> Iterator[Figure]:
    """Say what the guard adds at most, with confidence, and whether this measurement could tell if it added more."""
    for name in ALLOCATIONS:
        bounds = {arm: _interval(rounds, arm, name) for arm in ARMS if arm in rounds[0]}
        beside: dict[str, float | str] = {"plain_ns": 1e9 * _middle(rounds, "plain", name)}
        beside |= {"median": bounds["guard"][1], "least": bounds["guard"][0]}
        for arm in ARMS[2:]:
            beside[f"{arm}_ratio"] = bounds[arm][1] if arm in bounds else "not installed"
        yield Figure(
            name=f"{name}_at_most",
            value=bounds["guard"][2],
            unit="x plain",
            goal=Goal(at_most=UNCHANGED),
            beside=beside,
        )
        yield Figure(
            name=f"{name}_dispatch_at_least",
            value=bounds["dispatch"][0],
            unit="x plain",
            goal=Goal(at_least=UNCHANGED),
            beside={"again_least": bounds["again"][0], "again_most": bounds["again"][2]},
        )


def _interval(rounds: Sequence[Round], arm: str, name: str) -> tuple[float, float, float]:
    """Give the bounds of the median of the rounds' ratios, the median between them."""
    ratios = sorted(one[arm][f"{name}_ratio"] for one in rounds)
    out = 1 if len(ratios) >= ROUNDS else 0
    return ratios[out], median(ratios), ratios[-1 - out]


def _paths(rounds: Sequence[Round]) -> Iterator[Figure]:
    for name in PATHS:
        more = sorted(1e6 * one["guard"][f"{name}_more"] for one in rounds)
        beside = {"plain_us": 1e6 * _middle(rounds, "plain", name), "least": more[0], "most": more[-1]}
        yield Figure(name=name, value=median(more), unit="us more", beside=beside)


def _presence(rounds: Sequence[Round]) -> Iterator[Figure]:
    installs = [1e3 * one["guard"]["install"] for one in rounds]
    yield Figure(
        name="install_after_torch",
        value=median(installs),
        unit="ms of processor time",
        goal=Goal(at_most=20.0),
        beside={"least": min(installs), "most": max(installs)},
    )
    memory = _middle(rounds, "guard", "anon_bytes") - _middle(rounds, "plain", "anon_bytes")
    yield Figure(name="anonymous_memory", value=memory / 1024, unit="KiB more")
    threads = _middle(rounds, "guard", "threads") - _middle(rounds, "plain", "threads")
    yield Figure(name="threads", value=threads, unit="more", goal=Goal(at_most=1))


def _middle(rounds: Sequence[Round], arm: str, name: str) -> float:
    return median(one[arm][name] for one in rounds)


if __name__ == "__main__":
    sys.exit(main())
