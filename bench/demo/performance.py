"""The demo from its first scene to its summary."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType

from bench.demo.life import DemoError
from bench.demo.scenes import Play
from bench.demo.show import Show
from bench.demo.stage import Stage, missing_rights
from bench.demo.summary import Summary
from tests.lab.kit import watcher
from tests.lab.kit.places import CHECKOUT, PYTHON
from tests.lab.kit.wait import TooLateError

FOLDER = CHECKOUT / "build" / "demo"
SUMMARY = FOLDER / "summary.json"


def perform() -> int:
    """Play all scenes; give the exit status."""
    show = Show()
    signal.signal(signal.SIGTERM, _leave)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if missing := missing_rights():
            show.say(f"the demo needs root, cgroups and namespaces: {missing}")
            return 2
        watcher.start()
        return _play(show)
    except KeyboardInterrupt:
        show.say("interrupted; processes and cgroups are gone")
        return 128 + signal.SIGINT
    except (DemoError, TooLateError, OSError, subprocess.CalledProcessError) as error:
        show.say(f"the demo could not go on: {error}")
        return 1


def _leave(number: int, _frame: FrameType | None) -> None:
    """Unwind, so that everything is cleaned up."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _play(show: Show) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    SUMMARY.unlink(missing_ok=True)  # that of an earlier run must not pass for this one's
    weights = FOLDER / "model.safetensors"
    if not weights.exists():
        show.say(f"making a checkpoint once: {weights}")
    # Always, as it also brings torch's libraries into the page cache, where other containers of a node would have them.
    # In a group of its own: Ctrl-C on the terminal is for us alone, and `run` then ends it.
    subprocess.run([PYTHON, "-m", "bench.demo.net", str(weights)], cwd=CHECKOUT, check=True, process_group=0)
    with Stage(FOLDER, weights) as stage:
        play = Play(stage, show)
        show.heading("(a) reclaim: the weights do not fit, the server works on")
        reclaim = play.reclaim()
        show.heading("(b) hang: a deadlock")
        hang = play.hang()
        show.heading("(c) growth: a leak")
        growth = play.growth()
        show.heading("(d) kill: the kernel ends it while it loads")
        kill, expected_level = play.kill()
    summary = Summary(reclaim=reclaim, hang=hang, growth=growth, kill=kill, expected_level=expected_level)
    return _end(summary, stage, show)


def _end(summary: Summary, stage: Stage, show: Show) -> int:
    summary.write(SUMMARY)
    show.heading("what was seen")
    show.say(SUMMARY.read_text().strip().replace("\n", "\n  "))
    show.say(f"summary              {SUMMARY}")
    show.say(f"record and incidents {stage.shared / 'record.sqlite'}")
    show.say(f"the last end, shown  .venv/bin/oomguard report --record {stage.shared}")
    broken = list(summary.broken())
    for sentence in broken:
        show.say(f"NOT HELD  {sentence}")
    if not broken:
        show.say("every promise held")
    return 1 if broken else 0
