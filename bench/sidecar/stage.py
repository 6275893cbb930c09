"""One sidecar and its models, each in a cgroup of its own, kept apart as on a node.

The sidecar is `oomguard sidecar` as another user in its own PID, mount and cgroup namespace, a model is
`oomguard run -- COMMAND` as a second user. They share one directory and nothing else. The models' cgroups are seen
with all levels above them, which costs the sidecar more than the single level that a container usually shows.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from bench.demo.probes import request
from tests.lab.kit.cgroups import Cgroup, Limits
from tests.lab.kit.namespaces import Apart, inner_pid
from tests.lab.kit.wait import TooLateError, until

MODEL_UID: Final = 2001
SIDECAR_UID: Final = 2002
OOMGUARD: Final = str(Path(sys.prefix, "bin", "oomguard"))
_OK: Final = 200

Document = Mapping[str, Any]


def free_port() -> int:
    """Give a port on loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Model:
    """A model under `oomguard run`: `runner_pid` waits for `pid`, whose end `pidfd` tells."""

    name: str
    group: Cgroup
    runner_pid: int
    pid: int
    pidfd: int

    def wait_end(self, seconds: float) -> float:
        """Wait for the death of the main process and give its time on the monotonic clock."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        if not poll.poll(seconds * 1000):
            raise TooLateError(f"{self.name} did not end within {seconds} s")
        return time.monotonic()


class Stage:
    """See the module's docstring. `settings` are of the sidecar, by name of the variable without its prefix."""

    def __init__(self, name: str, **settings: str) -> None:
        self.port: Final = free_port()
        self._name = name
        self._settings = settings
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Make the shared directory and the groups, and start the sidecar; leave nothing when that fails."""
        try:
            self.folder = Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="oomguard-bench-")))
            self.folder.chmod(0o755)
            self.shared = self.folder / "shared"
            self.shared.mkdir()
            self.shared.chmod(0o777)  # as Kubernetes makes an emptyDir
            self._group = self._exit.enter_context(Cgroup.make(f"bench-{self._name}"))
            self.pid = self._start_sidecar()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop and remove all of it."""
        self._exit.close()

    def _start_sidecar(self) -> int:
        log = self.folder / "sidecar.log"
        settings = {"dir": str(self.shared), "listen": f"127.0.0.1:{self.port}", **self._settings}
        with log.open("wb") as output:
            process = self._group.child("sidecar").spawn(
                [OOMGUARD, "sidecar"],
                apart=Apart(uid=SIDECAR_UID, reachable=(str(self.shared),)),
                env={f"OOMGUARD_{name.upper()}": value for name, value in settings.items()},
                output=output,
            )

        def answers() -> bool:
            assert process.poll() is None, f"the sidecar ended:\n{log.read_text()[-2000:]}"
            with contextlib.suppress(OSError):
                return request(self.port, "GET", "/sidecar/readyz", 5.0)[0] == _OK
            return False

        until(answers, 30, "the sidecar to answer")
        return until(lambda: inner_pid(process.pid), 30, "the sidecar's pid")

    @contextlib.contextmanager
    def model(self, name: str, command: Sequence[str], limits: Limits) -> Iterator[Model]:
        """Run a model in a group of its own until the sidecar sees it; end and remove both afterwards."""
        with self._group.child(name, limits) as group, (self.folder / f"{name}.log").open("wb") as output:
            runner = group.spawn(
                [OOMGUARD, "run", "--", *command],
                apart=Apart(uid=MODEL_UID, pid_namespace=False, cgroup_namespace=False, reachable=(str(self.shared),)),
                env={"OOMGUARD_DIR": str(self.shared), "OOMGUARD_NAME": name},
                output=output,
            )
            pid = until(lambda: inner_pid(runner.pid), 30, f"{name} to run")
            pidfd = os.pidfd_open(pid)
            try:
                until(lambda: self._sees(name), 30, f"the sidecar to see {name}")
                yield Model(name, group, runner.pid, pid, pidfd)
            finally:
                os.close(pidfd)

    def _sees(self, name: str) -> bool:
        seen = self.get("/status")["models"].get(name)
        return bool(seen and seen["sample"] and seen["sample"]["levels"])

    def incident(self, model: Model) -> Document | None:
        """Give the incident of the end of this model, if there is one yet."""
        incidents = self.get("/incidents")["incidents"]
        return next((one for one in incidents if one["model"] == model.name and one["main"]), None)

    def warnings(self, model: Model) -> list[Document]:
        """Give the warnings about this model, oldest first."""
        events = self.get("/events?since=0")["events"]
        return [one for one in events if one["kind"] == "warning" and one["model"] == model.name]

    def get(self, path: str) -> Document:
        """Ask the sidecar for a JSON page."""
        _, body = request(self.port, "GET", path, 10.0)
        document: Document = json.loads(body)
        return document
