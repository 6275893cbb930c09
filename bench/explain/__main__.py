"""Measure; write build/bench/explain.json. Run by `make bench` or `python -m bench.explain [--mb N]`."""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

OUT = Path("build/bench/explain.json")
_TEXTS = Path("tests/corpus/raw")
_PROGRAMS = ("systemd[1]", "kubelet[1203]", "containerd[988]", "sshd[22113]", "python[4411]", "dockerd[777]", "kernel")
_WORDS = (
    "Started Session {} of user root.",
    "GET /v1/models HTTP/1.1 200 OK in {} ms",
    "I0101 operationExecutor.MountVolume succeeded for volume kube-api-access-{} pod web",
    'level=info msg="StopPodSandbox for {}" returns successfully',
    "Accepted publickey for deploy from 192.0.2.{} port 51022 ssh2",
    "loop7: detected capacity change from 0 to {}",
    "eth0: renamed from veth{}",
    "request {} done, tokens 512, cuda graph replayed",  # a line in nine holds a stem that is looked at
    "Reloading configuration of unit {}",
)
_REPORTS = ("a53", "a44", "c15", "e04")
_EVERY = 200_000  # lines between two reports
# What a scraper of kernel logs does: two expressions, tried on each line.
_SCRAPER = (
    re.compile(
        r"oom-kill:constraint=(.*),nodemask=(.*),cpuset=(.*),mems_allowed=(.*),oom_memcg=(.*),task_memcg=(.*),task=(.*)"
    ),
    re.compile(r"Killed process ([0-9]+) \((.+)\)"),
)


def journal(path: Path, megabytes: int) -> int:
    """Write a journal with a report now and then; give its size in bytes."""
    rng = random.Random(1)  # the same text in every run
    written = line = 0
    with path.open("w", encoding="utf-8") as file:
        while written < megabytes * 1_000_000:
            line += 1
            words = rng.choice(_WORDS).format(rng.randrange(10**6))
            clock = f"Jul 2{line % 9} {line % 24:02d}:{line % 60:02d}:{line % 59:02d}"
            text = f"{clock} host-a {rng.choice(_PROGRAMS)}: {words}\n"
            if line % _EVERY == _EVERY // 2:
                text += (_TEXTS / f"{_REPORTS[line // _EVERY % len(_REPORTS)]}.txt").read_text(encoding="utf-8") + "\n"
            written += file.write(text)
    return path.stat().st_size


def explain(path: Path) -> int:
    """Explain the file as a person does, in a process of its own; give the incidents found."""
    done = subprocess.run(
        [sys.executable, "-m", "guard.cli", "explain", "--json", str(path)], capture_output=True, check=False
    )
    return len(json.loads(done.stdout)["incidents"])


def grep(path: Path) -> int:
    """Count lines with grep."""
    done = subprocess.run(["grep", "-cE", "Killed process|oom-kill:", str(path)], capture_output=True, check=False)
    return int(done.stdout)


def scraper(path: Path) -> int:
    """Try the two expressions on each line, in Python."""
    with path.open(encoding="utf-8") as file:
        return sum(1 for line in file if any(one.search(line) for one in _SCRAPER))


def measured(act: Callable[[Path], int], path: Path, size: int, runs: int = 3) -> dict[str, float | int]:
    """Give the best of several runs: wall clock and processor time, which other loads on the machine disturb less."""
    wall, cpu, found = float("inf"), float("inf"), 0
    for _ in range(runs):
        began, used = time.perf_counter(), _cpu_seconds()
        found = act(path)
        wall, cpu = min(wall, time.perf_counter() - began), min(cpu, _cpu_seconds() - used)
    megabytes = size / 1e6
    return {
        "seconds": round(wall, 3),
        "cpu_seconds": round(cpu, 3),
        "mb_per_second": round(megabytes / wall, 1),
        "mb_per_cpu_second": round(megabytes / max(cpu, 1e-3), 1),
        "found": found,
    }


def _cpu_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main() -> int:
    """Measure all three on one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=100, help="size of the journal in megabytes (default 100)")
    megabytes = parser.parse_args().mb
    folder = Path(tempfile.mkdtemp(prefix="oomguard-bench-"))
    try:
        path = folder / "journal.log"
        size = journal(path, megabytes)
        grep(path)  # into the page cache
        rows = {act.__name__: measured(act, path, size) for act in (explain, grep, scraper)}
    finally:
        shutil.rmtree(folder)
    result = {"bytes": size, "runs": rows}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for name, row in rows.items():
        print(f"{name:8} {row['mb_per_second']:7.1f} MB/s ({row['mb_per_cpu_second']:.1f} a processor second)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
