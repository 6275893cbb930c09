"""What each path took at its peak, beside what a preflight says it would take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.preflight.cases import Case
from bench.preflight.children import Zygote
from guard.fit.check import ask
from guard.fit.need import Need, need

_WITHIN = 1.1


@dataclass(frozen=True, slots=True)
class Measured:
    """One case, in bytes. `said`: without the import of the library, which has happened before."""

    case: Case
    tensor_bytes: int
    said: Need
    anon_bytes: int
    mapped_bytes: int
    seconds: float

    @property
    def held(self) -> bool:
        """Whether what was said is within 10 % of the peak, or more than it."""
        return self.anon_bytes <= self.said.anon_bytes * _WITHIN


def measure(zygote: Zygote, folder: Path, cases: Iterable[Case]) -> Iterator[Measured]:
    """Run each case once. The folder holds the checkpoints."""
    for case in cases:
        question = ask(folder / case.file, path=case.path, dtype=case.dtype)
        said = need(question.found, question.path, dtype=question.dtype, on_device=False, import_bytes=0)
        peaks = zygote.watch(case.program(str(folder)))
        yield Measured(case, question.found.tensor_bytes, said, peaks.anon_bytes, peaks.mapped_bytes, peaks.seconds)
