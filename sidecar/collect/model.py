"""Everything that is read of one model in one tick: its levels and its processes.

The main process is the oldest one; the end of it is the end of the model. A process that joins after that begins the
next life, unless it is a child of the old one that is only late.
"""

from __future__ import annotations

from typing import Final

from guard.model import Known
from sidecar.collect.cgroup import LevelReader
from sidecar.collect.processes import ProcessReader
from sidecar.sample import LevelSample, ProcessSample
from sidecar.sight.seen import SeenModel

_LEAN_PROCESSES: Final = 8


class ModelReader:
    """Reads one seen model. It owns no descriptor: who opened them closes them, after the last read."""

    def __init__(self, seen: SeenModel) -> None:
        self.seen = seen
        self.levels = tuple(LevelReader(level, hidden_ancestors=seen.hidden_ancestors) for level in seen.levels)
        self.processes: list[ProcessReader] = []

    @property
    def main(self) -> ProcessReader | None:
        """The main process, alive or dead; None where no process is seen."""
        return next((process for process in self.processes if process.main), None)

    @property
    def living(self) -> int:
        """How many processes live."""
        return sum(process.alive for process in self.processes)

    def join(self) -> tuple[ProcessReader, ...]:
        """Take in the processes that were seen since the last call, give them, and say anew which one is main."""
        known = {id(process.seen) for process in self.processes}
        sessions = {process.seen.life.session for process in self.processes}
        joined = tuple(ProcessReader(seen) for seen in self.seen.processes if id(seen) not in known)
        self.processes += joined
        self._elect([process for process in joined if process.seen.parent_session not in sessions])
        return joined

    def forget(self, process: ProcessReader) -> None:
        """Leave out one that has ended."""
        self.processes.remove(process)

    def glance(self) -> int | None:
        """Give the least room below a limit, in bytes; None where no limit is known."""
        least: int | None = None
        for level in self.levels:
            room = level.glance() if level.bounded else None
            if isinstance(room, Known) and isinstance(room.value, int) and (least is None or room.value < least):
                least = room.value
        return least

    def read_levels(self, *, full: bool) -> tuple[LevelSample, ...]:
        """Read the levels, own first."""
        return tuple(level.read(full=full) for level in self.levels)

    def read_processes(self, *, full: bool) -> tuple[ProcessSample, ...]:
        """Read the processes; lean, only the first ones anew, as looking into a black box takes about 15 us."""
        last = _LEAN_PROCESSES if not full else len(self.processes)
        return tuple(
            process.read(full=full) if place < last else process.last_sample()
            for place, process in enumerate(self.processes)
        )

    def _elect(self, strangers: list[ProcessReader]) -> None:
        main = self.main
        if main is None or main.alive:
            candidates = [process for process in self.processes if process.alive] or self.processes
        elif strangers:
            candidates = strangers
        else:
            return
        oldest = min(candidates, key=lambda process: process.seen.life.start_ticks, default=None)
        for process in self.processes:
            process.main = process is oldest
