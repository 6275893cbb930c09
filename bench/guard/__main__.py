"""`python -m bench.guard [--rounds N]`. Exit status: 0 goals held, 1 one was not."""

from __future__ import annotations

import argparse
import json
import os
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

Arm = Mapping[str, float]
Round = Mapping[str, Arm]


def main() -> int:
    """Run the arms by turns, round after round, print a table and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="how often each arm runs (default 7)")
    parser.add_argument("--out", type=Path, default=RESULT, help="where to write the figures")
    options = parser.parse_args()
    rounds = [_round(number) for number in range(options.rounds)]
    parts = (
        Part("allocation", "Allocations of torch, served from its cache (pretend card)", tuple(_allocations(rounds))),
        Part("paths", "What the guard adds to a load, a tensor and a failure", tuple(_paths(rounds))),
        Part("presence", "What it takes to be there", tuple(_presence(rounds))),
    )
    for part in parts:
        sys.stdout.write("\n".join(part.table()) + "\n\n")
    held = all(part.held for part in parts)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    document = {"held": held, "rounds": options.rounds, "parts": {part.name: part.document() for part in parts}}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    sys.stdout.write(f"{'every goal held' if held else 'NOT every goal held'}; figures in {options.out}\n")
    return 0 if held else 1


def _round(number: int) -> Round:
    """Run every arm once; the order turns, so that no arm always runs on a warm machine."""
    turned = ARMS[number % len(ARMS) :] + ARMS[: number % len(ARMS)]
    return {arm: found for arm in turned if (found := _ask(arm)) is not None}


def _ask(arm: str) -> Arm | None:
    """Run one arm; None where its tool is not installed."""
    if arm == "memray" and not (PEERS / "memray").exists():
        return None
    with tempfile.TemporaryDirectory(prefix="oomguard-bench-") as folder:
        cards = PretendCards(Path(folder, "cards"), {"gpu0.total": "4G"})
        environment = {
            **cards.environment,
            "OOMGUARD_DIR": folder,
            "PYTHONPATH": os.pathsep.join((str(CHECKOUT), str(PEERS))),
        }
        ran = subprocess.run(
            [sys.executable, "-m", "bench.guard.arm", arm],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    answer: Arm = json.loads(ran.stdout)
    return answer


def _allocations(rounds: Sequence[Round]) -> Iterator[Figure]:
    for name in ("cuda_allocation", "cpu_allocation"):
        beside = {
            f"{arm}_ratio": _ratio(rounds, arm, name) if arm in rounds[0] else "not installed"
            for arm in ARMS
            if arm not in ("plain", "guard")
        }
        alike = [one["guard"][name] / one["plain"][name] for one in rounds]
        yield Figure(
            name=f"{name}_ratio",
            value=_ratio(rounds, "guard", name),
            unit="x plain",
            goal=Goal(at_most=1.05),
            beside={
                "plain_ns": 1e9 * _middle(rounds, "plain", name),
                "least": min(alike),
                "most": max(alike),
                **beside,
            },
        )


def _paths(rounds: Sequence[Round]) -> Iterator[Figure]:
    for name in ("torch_load", "load_file", "tensor", "survived_failure"):
        plain, guarded = (_middle(rounds, arm, name) for arm in ("plain", "guard"))
        yield Figure(name=name, value=1e6 * (guarded - plain), unit="us more", beside={"plain_us": 1e6 * plain})


def _presence(rounds: Sequence[Round]) -> Iterator[Figure]:
    installs = [1e3 * one["guard"]["install"] for one in rounds]
    yield Figure(
        name="install_after_torch",
        value=median(installs),
        unit="ms",
        goal=Goal(at_most=20.0),
        beside={"least": min(installs), "most": max(installs)},
    )
    memory = _middle(rounds, "guard", "anon_bytes") - _middle(rounds, "plain", "anon_bytes")
    yield Figure(name="anonymous_memory", value=memory / 1024, unit="KiB more")
    threads = _middle(rounds, "guard", "threads") - _middle(rounds, "plain", "threads")
    yield Figure(name="threads", value=threads, unit="more", goal=Goal(at_most=1))


def _middle(rounds: Sequence[Round], arm: str, name: str) -> float:
    return median(one[arm][name] for one in rounds)


def _ratio(rounds: Sequence[Round], arm: str, name: str) -> float:
    """Give the median of the rounds' own ratios: what changes between rounds drops out."""
    return median(one[arm][name] / one["plain"][name] for one in rounds)


if __name__ == "__main__":
    sys.exit(main())
