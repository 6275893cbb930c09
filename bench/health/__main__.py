"""`python -m bench.health [--only TEXT] [--short] [--runs N]`.

Exit status: 0 all right, 1 a sidecar gave a wrong answer, 2 the rights are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Final

from bench.demo.stage import missing_rights
from bench.health.chart import write_chart
from bench.health.play import Line, play
from bench.health.scenarios import NOT_PLAYED, SHORT, Scenario, playable
from bench.health.stage import Stage
from tests.lab.kit.cgroups import sweep
from tests.lab.kit.places import CHECKOUT
from tests.lab.kit.wait import TooLateError

FOLDER: Final = CHECKOUT / "build" / "health"
RESULT: Final = CHECKOUT / "build" / "bench" / "health.json"
BIG_MIB: Final = 300
TENSOR_ROWS: Final = 1024
TENSORS: Final = 40  # of 4 MiB each


def main() -> int:
    """Play, print each line, write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="scenarios whose name has this in it")
    parser.add_argument("--short", action="store_true", help="a few that stand for all")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    if missing := missing_rights():
        sys.stdout.write(f"the bench needs root, cgroups and namespaces: {missing}\n")
        return 2
    signal.signal(signal.SIGTERM, _leave)
    sweep()
    chosen = [one for one in playable() if options.only in one.name and (not options.short or one.name in SHORT)]
    lines = [line for _ in range(options.runs) for line in play_all(chosen, FOLDER)]
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps([line.document() for line in lines], indent=1) + "\n")
    write_chart(lines, RESULT.with_suffix(".svg"))
    for name, why in NOT_PLAYED.items():
        sys.stdout.write(f"not played: {name}: {why}\n")
    wrong = [line for line in lines if not line.right and line.judge != "A"]
    sys.stdout.write(f"{len(lines)} answers, {len(wrong)} of a sidecar wrong; {RESULT}\n")
    return 1 if wrong else 0


def play_all(chosen: list[Scenario], folder: Path) -> Iterator[Line]:
    """Play on one stage, and show each line."""
    folder.mkdir(parents=True, exist_ok=True)
    files = make_files(folder)
    sys.stdout.write(f"{'scenario':52} {'well':5} {'judge':5} {'failed after':>12} {'bound':>6}\n")
    with Stage(folder) as stage:
        for scenario in chosen:
            try:
                found = play(stage, scenario, files)
            except TooLateError as error:
                sys.stdout.write(f"{scenario.name}: could not be played: {error}\n")
                continue
            for line in found:
                _show(line)
                yield line


def _show(line: Line) -> None:
    after = "-" if line.failed_after_s is None else f"{line.failed_after_s:.1f} s"
    bound = "-" if line.bound_s is None else f"{line.bound_s:.0f} s"
    mark = "" if line.right else "  WRONG" if line.judge != "A" else "  wrong"
    well = "yes" if line.healthy else "hang"
    sys.stdout.write(f"{line.scenario:52} {well:5} {line.judge:5} {after:>12} {bound:>6}{mark}  {line.states}\n")
    sys.stdout.flush()


def make_big(folder: Path) -> Path:
    """Make the file of raw weights, once."""
    path = folder / "weights.big"
    if not path.exists():
        part = folder / "part"
        with part.open("wb") as out:
            out.writelines(os.urandom(1 << 20) for _ in range(BIG_MIB))
        part.chmod(0o644)
        part.rename(path)
    return path


def make_files(folder: Path) -> Mapping[str, Path]:
    """Make all files once: raw weights, and a checkpoint as safetensors and as torch writes it."""
    files = {name: folder / f"weights.{name}" for name in ("safetensors", "torch")}
    if not all(path.exists() for path in files.values()):
        import safetensors.torch
        import torch

        tensors = {f"{number}.weight": torch.randn(TENSOR_ROWS, TENSOR_ROWS) for number in range(TENSORS)}
        safetensors.torch.save_file(tensors, files["safetensors"])
        torch.save(tensors, files["torch"])
        for path in files.values():
            path.chmod(0o644)
    return {"big": make_big(folder), **files}


def _leave(number: int, _frame: FrameType | None) -> None:
    """Unwind, so that everything is cleaned up."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
