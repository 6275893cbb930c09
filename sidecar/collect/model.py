"""Everything that is read of one model in one tick: its levels and its processes."""

from __future__ import annotations

from sidecar.collect.cgroup import LevelReader
from sidecar.collect.processes import ProcessReader
from sidecar.sample import LevelSample, ProcessSample
from sidecar.sight.seen import SeenModel


class ModelReader:
    """Reads one seen model. Processes may join at any time; those that ended stay until `forget_ended`."""

    def __init__(self, seen: SeenModel) -> None:
        self.seen = seen
        self.levels = tuple(LevelReader(level) for level in seen.levels)
        self.processes: list[ProcessReader] = []

    @property
    def main(self) -> ProcessReader | None:
        """The main process, alive or dead; None where no process is seen."""
        return next((process for process in self.processes if process.main), None)

    @property
    def living(self) -> int:
        """How many processes live."""
        return sum(process.alive for process in self.processes)

    def join(self) -> list[ProcessReader]:
        """Take in the processes that were seen since the last call, and give them."""
        known = {process.seen.life.session for process in self.processes}
        joined = []
        for seen in self.seen.processes:
            if seen.life.session not in known:
                main = self.main
                joined.append(ProcessReader(seen, main=main is None or (not main.alive and self.living == 0)))
                if main is not None and joined[-1].main:
                    main.main = False
                self.processes.append(joined[-1])
        return joined

    def forget(self, process: ProcessReader) -> None:
        """Close and drop one that has ended and been accounted for; the main one stays as the model's last word."""
        process.close()
        if process in self.processes:
            self.processes.remove(process)
        if process.seen in self.seen.processes:
            self.seen.processes.remove(process.seen)

    def read_levels(self, *, full: bool) -> tuple[LevelSample, ...]:
        """Read the levels, own first."""
        return tuple(level.read(full=full) for level in self.levels)

    def read_processes(self, *, full: bool) -> tuple[ProcessSample, ...]:
        """Read the processes, the main one first."""
        return tuple(process.read(full=full) for process in self.processes)

    def close(self) -> None:
        """Close every descriptor."""
        for level in self.levels:
            level.close()
        for process in self.processes:
            process.close()
