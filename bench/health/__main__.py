"""`python -m bench.health [--only TEXT] [--short] [--runs N]`.

Exit status: 0 all right, 1 a sidecar gave a wrong answer or a scenario could not be played, 2 the rights are missing.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final

from bench.demo.stage import missing_rights
from bench.health.chart import write_chart
from bench.health.files import make_files
from bench.health.line import HEAD
from bench.health.run import Run, play_all
from bench.health.scenario import Scenario
from bench.health.scenarios import SHORT, not_playable, playable
from tests.lab.kit.cgroups import sweep
from tests.lab.kit.places import CHECKOUT

FOLDER: Final = CHECKOUT / "build" / "health"
RESULTS: Final = CHECKOUT / "build" / "bench"


def main() -> int:
    """Play, print each row, write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="scenarios whose name has this in it")
    parser.add_argument("--short", action="store_true", help="a few that stand for all")
    parser.add_argument("--runs", type=int, default=1, help="so many whole runs, with a summary over them")
    options = parser.parse_args()
    if missing := missing_rights():
        say(f"the bench needs root, cgroups and namespaces: {missing}")
        return 2
    signal.signal(signal.SIGTERM, leave)
    sweep()
    make_files(FOLDER)
    chosen = [one for one in playable() if options.only in one.name and (not options.short or one.name in SHORT)]
    runs: list[Run] = []
    for number in range(1, options.runs + 1):
        say(f"run {number} of {options.runs}\n{HEAD}")
        runs.append(play_all(chosen, FOLDER, say))
        _write(runs, chosen)
    for name, why in (not_playable() | runs[-1].unplayable).items():
        say(f"not played here: {name}: {why}")
    return _conclude(runs)


def _write(runs: Sequence[Run], chosen: Sequence[Scenario]) -> None:
    """Write what there is so far: the last run as the result, and all of them where there are several."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    order = {one.name: number for number, one in enumerate(chosen)}
    lines = sorted(runs[-1].lines, key=lambda line: (order[line.scenario], line.judge))
    (RESULTS / "health.json").write_text(json.dumps([line.document() for line in lines], indent=1) + "\n")
    write_chart(lines, RESULTS / "health.svg")
    if len(runs) > 1:
        document = {"summary": summary(runs), "runs": [_document(run) for run in runs]}
        (RESULTS / "health-runs.json").write_text(json.dumps(document, indent=1) + "\n")


def _document(run: Run) -> dict[str, Any]:
    return {"lines": [line.document() for line in run.lines], "unplayed": run.unplayed, "unplayable": run.unplayable}


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Count over runs: answers and wrong ones of each judge, wrong ones of each scenario, what was not played."""
    lines = [line for run in runs for line in run.lines]
    wrong = [line for line in lines if not line.right]
    return {
        "runs": len(runs),
        "answers": dict(sorted(Counter(line.judge for line in lines).items())),
        "wrong": {judge: sum(line.judge == judge for line in wrong) for judge in "ABC"},
        "wrong_by_scenario": dict(sorted(Counter(f"{line.scenario}: {line.judge}" for line in wrong).items())),
        "unplayed": dict(sorted(Counter(name for run in runs for name in run.unplayed).items())),
    }


def _conclude(runs: Sequence[Run]) -> int:
    found = summary(runs)
    say(json.dumps(found, indent=1))
    for line in (line for run in runs for line in run.wrong):
        say(f"WRONG {line}\n      {line.said}")
    unplayed = sum(len(run.unplayed) for run in runs)
    of_ours = sum(len(run.wrong) for run in runs)
    say(f"{of_ours} answers of a sidecar wrong, {unplayed} scenarios not played; {RESULTS / 'health.json'}")
    return 1 if of_ours or unplayed else 0


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def leave(number: int, _frame: FrameType | None) -> None:
    """Unwind, so that everything is cleaned up."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
