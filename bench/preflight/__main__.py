"""`python -m bench.preflight`: what each load path takes beside what a preflight says, and kills at random moments.

Writes build/bench/preflight.json, and the table of docs/preflight.md with `--docs`. Needs root and real cgroups.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.preflight.cases import CASES, EVERYTHING
from bench.preflight.checkpoints import write_all
from bench.preflight.children import zygote
from bench.preflight.kills import KILLED, Killed, kill
from bench.preflight.measure import Measured, measure
from bench.preflight.oom_kills import starve
from guard.fit.check import answer, ask
from guard.fit.paths import IMPORT_BYTES
from tests.lab.kit import watcher
from tests.lab.kit.cgroups import MIB, Limits, sweep

_ROOT: Final = Path(__file__).resolve().parents[2]
_OUT: Final = _ROOT / "build" / "bench"
_PAGE: Final = _ROOT / "docs" / "preflight.md"
_TABLE: Final = re.compile(r"(?<=<!-- measured: begin -->\n).*(?=<!-- measured: end -->)", re.DOTALL)
_LIMIT: Final = 1400 * MIB
_KILLS: Final = 20
_STARVED: Final = 5
_GOAL_SECONDS: Final = 0.010
_QUIET: Final[Mapping[str, str]] = {"TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1", "OOMGUARD_PREFLIGHT": "off"}
_IMPORT: Final = """
import re
def anon(): return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
before = anon()
import {library}
{more}
print(anon() - before)
"""
_USED: Final[Mapping[str, str]] = {
    "transformers": "from transformers import LlamaForCausalLM",
    "diffusers": "from diffusers import DDPMPipeline",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, kill, write down. Status 1 if a prediction or a box was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.preflight", description=__doc__)
    parser.add_argument("--kills", type=int, default=_KILLS, help="kills of each load (default: 20)")
    parser.add_argument("--starved", type=int, default=_STARVED, help="kills of each by the kernel (default: 5)")
    parser.add_argument("--docs", action="store_true", help="write the table of docs/preflight.md too")
    arguments = parser.parse_args(argv)
    sweep()
    watcher.start()
    folder = _OUT / "preflight-checkpoints"
    write_all(folder)
    with zygote(EVERYTHING, Limits(memory_max_bytes=_LIMIT), _QUIET) as forks:
        measured = [_told(one) for one in measure(forks, folder, CASES)]
        killed = [_counted(one) for one in kill(forks, folder, KILLED, arguments.kills)]
        starved = [_counted(one) for one in starve(forks, folder, KILLED, arguments.starved)]
    seconds = _seconds(folder)
    document = {
        "limit_bytes": _LIMIT,
        "preflight_seconds": seconds,
        "paths": [_measured_document(one) for one in measured],
        "kills": _kills_document(killed),
        "kills_by_the_kernel": _kills_document(starved),
        "wrong": [text for one in (*killed, *starved) for text in one.wrong],
        "imports": _imports(),
    }
    (_OUT / "preflight.json").write_text(json.dumps(document, indent=1) + "\n")
    if arguments.docs:
        _PAGE.write_text(_TABLE.sub(lambda _: _table(measured, killed, starved), _PAGE.read_text()))
    good = all(one.held for one in measured) and not document["wrong"] and max(seconds.values()) <= _GOAL_SECONDS
    named = sum(one.named for one in (*killed, *starved))
    print(f"{'held' if good else 'NOT HELD'}: {len(measured)} paths, {named} kills named;")
    print(f"a preflight took at most {max(seconds.values()) * 1e3:.1f} ms; see {_OUT / 'preflight.json'}")
    return 0 if good else 1


def _told(one: Measured) -> Measured:
    said, peak = one.said.anon_bytes / MIB, one.anon_bytes / MIB
    print(f"{one.case.name:64} peak {peak:6.1f} MiB, said {said:6.1f}{'' if one.held else '  WRONG'}", flush=True)
    return one


def _counted(one: Killed) -> Killed:
    print(f"{one.case.name:64} {one.named} named, {one.with_tensor} with tensor {one.wrong or ''}", flush=True)
    return one


def _kills_document(kills: Sequence[Killed]) -> list[dict[str, object]]:
    return [{"case": one.case.name, "named": one.named, "with_tensor": one.with_tensor} for one in kills]


def _measured_document(one: Measured) -> dict[str, object]:
    return {
        "path": one.case.path,
        "file": one.case.file,
        "dtype": one.case.dtype,
        "tensor_bytes": one.tensor_bytes,
        "said_anon_bytes": one.said.anon_bytes,
        "peak_anon_bytes": one.anon_bytes,
        "said_mapped_bytes": one.said.mapped_bytes,
        "peak_mapped_bytes": one.mapped_bytes,
        "held": one.held,
    }


def _seconds(folder: Path) -> dict[str, float]:
    """Best of five preflights of each checkpoint, in processor time: the machine may be shared."""
    found = {}
    for file in sorted({case.file for case in CASES}):
        tries = []
        for _ in range(5):
            started = time.process_time()
            answer(ask(folder / file))
            tries.append(time.process_time() - started)
        found[file] = min(tries)
    return found


def _imports() -> dict[str, dict[str, int]]:
    """What importing each library takes, beside what `guard.fit.paths` says. Two are not installed here."""
    found = {}
    for library, said in IMPORT_BYTES.items():
        if library not in ("llama_cpp", "jax"):
            code = _IMPORT.format(library=library, more=_USED.get(library, ""))
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", code],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            found[library] = {"said_bytes": said, "anon_bytes": int(done.stdout)}
    return found


def _table(measured: Sequence[Measured], killed: Sequence[Killed], starved: Sequence[Killed]) -> str:
    """Give the table in Markdown."""
    kills, by_the_kernel = (
        {one.case.name: f"{one.named} of {one.named + len(one.wrong)}" for one in found} for found in (killed, starved)
    )
    lines = [
        "| path | checkpoint | tensors, MiB | needs (said) | peak | times | mapped | killed: named | by the kernel |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for one in measured:
        kind = f"{one.case.file}, as {one.case.dtype}" if one.case.dtype else one.case.file
        lines.append(
            f"| `{one.case.path}` | {kind} | {one.tensor_bytes / MIB:.0f} | {one.said.anon_bytes / MIB:.0f} "
            f"| {one.anon_bytes / MIB:.0f} | {one.anon_bytes / one.tensor_bytes:.2f} "
            f"| {one.mapped_bytes / MIB:.0f} "
            f"| {kills.get(one.case.name, '')} | {by_the_kernel.get(one.case.name, '')} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
