"""Kills a load at a random moment and asks its black box what was in flight."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.preflight.cases import CASES, Case
from bench.preflight.children import Zygote
from guard.box.reader import parse_box
from guard.model import Known, Operation

KILLED: Final = tuple(case for case in CASES if case.file != "bf16.pt")
"""All but the one whose time goes by in a conversion of the host's own."""
_TRIES = 400
"""A mapped load takes a few milliseconds, so some kills come too late and are tried again, a little sooner."""
_SOONER = 0.9
_WITHOUT_FILE = (
    "load_state_dict",
    "Sequential.half",
    "torch.load(BytesIO)",
    "safetensors.torch.load",
    "safetensors.numpy.load",
)
_IN_ONE_CALL = ("torch.load(mmap=True)", "safetensors.torch.load_file")
_INSTALL = """
import os
os.environ['OOMGUARD_DIR'] = {directory!r}
os.environ['OOMGUARD_FENCE'] = 'raise'
import guard
guard.install()
"""


@dataclass(frozen=True, slots=True)
class Killed:
    """What became of the kills of one case."""

    case: Case
    named: int  # operation and file told, and the tensor where one was in flight
    with_tensor: int  # of those, with a tensor
    wrong: tuple[str, ...]  # what the box said instead


def kill(zygote: Zygote, folder: Path, cases: Iterable[Case], times: int) -> Iterator[Killed]:
    """Kill each case so many times within its load. The folder holds the checkpoints, and the boxes for the moment."""
    moments = random.Random(4)
    for case in cases:
        load = Load(case, folder)
        seconds = zygote.seconds(load.program())
        answers = [_kill_once(zygote, load, seconds, moments) for _ in range(times)]
        wrong = tuple(text for text in answers if text not in ("named", "named with tensor"))
        yield Killed(case, times - len(wrong), answers.count("named with tensor"), wrong)


class Load:
    """A case as a program with the guard, and where its box lies."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self._directory = folder / "killed"

    def program(self, begin: str = "begin()") -> str:
        """Give the code, with an empty shared directory. `begin` is called once everything is ready for the load."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir()
        install = _INSTALL.format(directory=str(self._directory))
        case = self.case
        return "\n".join([install, *case.head(str(self.folder)), *case.setup, begin, *case.code])

    def operations(self) -> tuple[Operation, ...]:
        """Read the box."""
        (path,) = (self._directory / "boxes").glob("*.box")
        box = parse_box(path.read_bytes(), str(path))
        assert isinstance(box, Known), box
        return box.value.operations


def _kill_once(zygote: Zygote, load: Load, seconds: float, moments: random.Random) -> str:
    span = seconds
    for _ in range(_TRIES):
        if not zygote.kill_after(load.program(), moments.uniform(0, span)):
            span *= _SOONER
            continue
        answer = judge(load.case, load.operations())
        if answer is not None:
            return answer
    return "every kill came too late or too early"


def judge(case: Case, operations: tuple[Operation, ...]) -> str | None:
    """Say what the box told; None where the kill fell before the first call, between two, or after the last one."""
    in_flight = [one for one in operations if not one.done]
    if not in_flight:
        return None
    if len(in_flight) > 1 or in_flight[0].label not in case.labels:
        return f"in flight: {[one.label for one in in_flight]}"
    (one,) = in_flight
    if one.label not in _WITHOUT_FILE and "(bytes)" not in one.label and not (one.file or "").endswith(case.file):
        return f"{one.label} of the file {one.file}"
    if one.item is None and case.item and one.label not in _IN_ONE_CALL and one.bytes_done:
        return f"{one.label}: {one.bytes_done} bytes done, but no tensor"
    return "named" if one.item is None else "named with tensor"
