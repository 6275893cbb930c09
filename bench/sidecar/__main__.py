"""`python -m bench.sidecar [--minutes M] [--short]`. Exit status: 0 goals held, 1 one was not, 2 rights are missing."""

from __future__ import annotations

import argparse
import compileall
import http.client
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final

from bench.demo.stage import missing_rights
from bench.sidecar import answers, crash_loop, deaths, guarding, leads, ticking
from bench.sidecar.figures import Json, Part
from tests.lab.kit import watcher
from tests.lab.kit.cgroups import sweep
from tests.lab.kit.offer import offer
from tests.lab.kit.places import CHECKOUT
from tests.lab.kit.wait import TooLateError

RESULT: Final = CHECKOUT / "build" / "bench" / "sidecar.json"


def main() -> int:
    """Measure all parts, print each as it is done, and write the result."""
    options = _options()
    if missing := missing_rights():
        sys.stdout.write(f"the benchmark needs root, cgroups and namespaces: {missing}\n")
        return 2
    signal.signal(signal.SIGTERM, _leave)
    sweep()
    watcher.start()
    for package in ("guard", "sidecar"):  # as an installer does; what is compiled at a start costs it time and memory
        compileall.compile_dir(CHECKOUT / package, quiet=1)
    options.out.unlink(missing_ok=True)  # that of an earlier run must not pass for this one's
    machine = _machine()
    sys.stdout.write(f"{machine['mode']}, kernel {machine['kernel']}, {machine['cores']} cores, ")
    sys.stdout.write(f"load average {machine['load_average_before']:.1f}\n")
    parts: list[Part] = []
    try:
        for part in _measure(options):
            parts.append(part)
            sys.stdout.write("\n" + "\n".join(part.table()) + "\n")
            sys.stdout.flush()
    except (TooLateError, OSError, http.client.HTTPException, subprocess.CalledProcessError) as error:
        sys.stdout.write(f"the benchmark could not go on: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stdout.write("interrupted; processes and cgroups are gone\n")
        return 128 + signal.SIGINT
    missed = [f"{part.name}.{name}" for part in parts for name in part.missed]
    head = {"machine": machine, "minutes": options.minutes, "short": options.short, "held": not missed}
    _write(options.out, head, parts)
    outcome = f"NOT held: {', '.join(missed)}" if missed else "every goal held"
    sys.stdout.write(f"\n{outcome}; figures in {options.out}\n")
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.sidecar", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long sidecars are watched (default 10)")
    parser.add_argument("--short", action="store_true", help="fewer repeats: shows that it works, not how well")
    parser.add_argument("--out", type=Path, default=RESULT, help="where to write the figures")
    return parser.parse_args()


def _measure(options: argparse.Namespace) -> Iterator[Part]:
    short = options.short
    yield from guarding.measure(interpreters=2 if short else 9)
    yield from leads.measure(harmless_seconds=3.0 if short else 15.0)
    yield from deaths.measure(kills=3 if short else 24)
    yield from crash_loop.measure(lives=4 if short else 150)
    yield from answers.measure(requests=40 if short else 400)
    yield from ticking.measure(options.minutes)


def _machine() -> Json:
    processor = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    mode = offer().mode
    return {
        "kernel": platform.release(),
        "mode": None if mode is None else mode.value,
        "cores": os.cpu_count(),
        "processor": processor,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "load_average_before": os.getloadavg()[0],
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _write(path: Path, head: Json, parts: list[Part]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = head | {"parts": {part.name: part.document() for part in parts}}
    path.write_text(json.dumps(document, indent=2) + "\n")


def _leave(number: int, _frame: FrameType | None) -> None:
    """Unwind, so that everything is cleaned up."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
