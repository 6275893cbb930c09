"""The host programs of the CUDA tests: the same ones for pretend cards and for a real GPU."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from guard.model import Failure
from tests.guard.hosts import Ended, boxes, environment, run_command
from tests.stubs.pretend import _WANTED, LIBRARIES, PretendCards

REAL: Final = "OOMGUARD_TEST_GPU"
MIB: Final = 1 << 20
GIB: Final = 1 << 30

PRELUDE: Final = """
import json, os, sys, guard
{install}
import torch
assert not torch.cuda.is_initialized(), "the guard must not bring CUDA up"
MIB = 1 << 20
def take(n):
    return torch.empty(n * MIB, dtype=torch.uint8, device="cuda")
def only_a_gibibyte():
    "On a large card: torch may take 1 GiB of it; on a pretend one of 1 GiB this changes nothing."
    total = torch.cuda.get_device_properties(0).total_memory
    if total > 1 << 30:
        torch.cuda.set_per_process_memory_fraction((1 << 30) / total)
def failures():
    from guard.box.reader import parse_box
    with open(guard.status().box, "rb") as file:
        box = parse_box(file.read(), "box").value
    return [[one.kind, one.fatal, one.thread, dict(one.fields)] for one in box.failures]
"""


@dataclass(frozen=True, slots=True)
class CudaHost:
    """Runs programs; `cards` is None on a real GPU."""

    shared: Path
    cards: PretendCards | None

    def run(self, code: str, install: str = "guard.install()", **more: str) -> Ended:
        """Run a program to its end, the guard installed before torch is imported."""
        env = environment(self.shared, {**self._pretended, **more})
        return run_command([sys.executable, "-c", PRELUDE.format(install=install) + code], env)

    @property
    def _pretended(self) -> dict[str, str]:
        if self.cards is None:
            return {}
        return {_WANTED: str(self.cards.folder), "LD_LIBRARY_PATH": str(LIBRARIES)}

    def told(self, code: str, install: str = "guard.install()", **more: str) -> Any:  # noqa: ANN401 - JSON
        """Run a program that ends well and give what it printed as JSON on its last line."""
        ended = self.run(code, install, **more)
        assert ended.returncode == 0, ended.err
        return json.loads(ended.out.splitlines()[-1])

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What the only box says."""
        (box,) = boxes(self.shared)
        return box.failures

    @property
    def termination_log(self) -> str:
        """What the orchestrator would show."""
        return (self.shared / "termination-log").read_text()


def records(ended: Ended) -> list[dict[str, Any]]:
    """Give the guard's lines on standard error."""
    return [json.loads(line) for line in ended.lines]


def without_noise(text: str) -> str:
    """Leave out torch's own C++ warnings, which carry the time and the process id."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("[W"))
