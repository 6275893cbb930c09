"""The lab's stage for the benchmark: the sidecar by its settings, models by their pids and ends.

The models' cgroups are seen with all levels above them, which costs the sidecar more than the single level that a
container usually shows.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.lab.cases import stage as lab
from tests.lab.kit.cgroups import Limits
from tests.lab.kit.wait import TooLateError


@dataclass(frozen=True, slots=True)
class Model(lab.Model):
    """A model that the sidecar sees: `runner` waits for `pid`, whose end `pidfd` tells."""

    pid: int
    pidfd: int

    def wait_end(self, seconds: float) -> float:
        """Wait for the death of the main process and give its time on the monotonic clock."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        if not poll.poll(seconds * 1000):
            raise TooLateError(f"{self.name} did not end within {seconds} s")
        return time.monotonic()


class Stage(lab.Stage):
    """See the module's docstring. `settings` are of the sidecar, by name of the variable without its prefix."""

    def __init__(self, **settings: str) -> None:
        super().__init__(lab.Sidecar(env={f"OOMGUARD_{name.upper()}": value for name, value in settings.items()}))

    @contextlib.contextmanager
    def watched(self, name: str, command: Sequence[str], limits: Limits) -> Iterator[Model]:
        """Run a model in a group of its own until the sidecar has its black box; end and remove both afterwards."""
        with self.model(name, way=lab.Way(limits=limits, command=tuple(command))) as model:
            pid = model.main_pid()
            pidfd = os.pidfd_open(pid)
            try:
                self.wait_guarded(model)
                yield Model(model.name, model.group, model.runner, model.log, pid, pidfd)
            finally:
                os.close(pidfd)

    def warnings(self, model: Model) -> list[lab.Document]:
        """Give the warnings about this model, oldest first."""
        events = self.get("/events?since=0")["events"]
        return [one for one in events if one["kind"] == "warning" and one["model"] == model.name]
