"""A running sidecar and the models it sees, each in its own cgroup, as they stand on a node.

The sidecar is `oomguard sidecar` as another user in its own cgroup, PID, mount and cgroup namespace; a model is
`oomguard run -- LOAD` as a second user. They share one directory and nothing else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.lab.kit import loads
from tests.lab.kit.cgroups import Cgroup, Limits
from tests.lab.kit.namespaces import Apart, inner_pid
from tests.lab.kit.wait import until

MODEL_UID: Final = 2001
SIDECAR_UID: Final = 2002
OOMGUARD: Final = str(Path(sys.prefix, "bin", "oomguard"))

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Model:
    """A model under `oomguard run`. `runner` is the process that waits for it."""

    name: str
    group: Cgroup
    runner: subprocess.Popen[bytes]

    def main_pid(self) -> int:
        """Return the pid of the load itself, the runner's child, once it runs."""
        return until(lambda: inner_pid(self.runner.pid), 10, f"{self.name} to run")


class Stage:
    """See the module's docstring. Leaving the context stops and removes all of it."""

    def __init__(self) -> None:
        self._exit = contextlib.ExitStack()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: Final[int] = free.getsockname()[1]

    def __enter__(self) -> Self:
        """Make the shared directory and the groups, and start the sidecar."""
        try:
            self.folder = Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="oomguard-stage-")))
            self.folder.chmod(0o755)
            self.shared = self.folder / "shared"
            self.shared.mkdir()
            self.shared.chmod(0o777)  # as Kubernetes makes an emptyDir
            self.group = self._exit.enter_context(Cgroup.make("stage"))
            self._sidecar_group = self.group.child("sidecar")
            self.start_sidecar()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop and remove all of it."""
        self._exit.close()

    def start_sidecar(self) -> None:
        """Start a sidecar and wait until it answers."""
        settings = {"OOMGUARD_DIR": str(self.shared), "OOMGUARD_LISTEN": f"127.0.0.1:{self.port}"}
        with (self.folder / "sidecar.log").open("ab") as log:
            self._sidecar = self._sidecar_group.spawn(
                [OOMGUARD, "sidecar"],
                apart=Apart(uid=SIDECAR_UID, reachable=(str(self.shared),)),
                env=settings,
                output=log,
            )
        until(self._answers, 30, "the sidecar to answer")

    def kill_sidecar(self) -> None:
        """Kill it with SIGKILL, as the kernel or a node would."""
        os.kill(until(lambda: inner_pid(self._sidecar.pid), 5, "the sidecar's pid"), signal.SIGKILL)
        self._sidecar.wait(10)
        assert self._sidecar.returncode != 0

    def model(self, name: str, *parts: str, group: Cgroup, apart: Apart | None = None) -> Model:
        """Start a load under `oomguard run` in this group and wait until the sidecar sees it."""
        with (self.folder / f"{name}.log").open("wb") as log:
            runner = group.spawn(
                [OOMGUARD, "run", "--", *loads.command(*parts)],
                apart=apart or Apart(uid=MODEL_UID, pid_namespace=False, cgroup_namespace=False),
                env={"OOMGUARD_DIR": str(self.shared), "OOMGUARD_NAME": name},
                output=log,
            )
        return Model(name, group, runner)

    def wait_seen(self, model: Model) -> Document:
        """Wait until the sidecar has a sample of the model through its hand-over, and return its status."""

        def seen() -> Document | None:
            status = self.get("/status")["models"].get(model.name)
            return status if status and status["sample"] and status["sample"]["levels"] else None

        return until(seen, 30, f"the sidecar to see {model.name}")

    def incident(self, model: Model, *, main: bool = True) -> Document:
        """Wait for the incident of the model's main process, or of one of its children, and return it."""

        def found() -> Document | None:
            listed = self.get("/incidents")["incidents"]
            return next((one for one in listed if one["model"] == model.name and one["main"] is main), None)

        return until(found, 30, f"an incident of {model.name}")

    def get(self, path: str) -> Document:
        """Ask the sidecar for a JSON page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path)
            document: Document = json.load(connection.getresponse())
        return document

    def child(self, name: str, limits: Limits) -> Cgroup:
        """Make a group for a model."""
        return self.group.child(name, limits)

    def _answers(self) -> bool:
        assert self._sidecar.poll() is None, (self.folder / "sidecar.log").read_text()[-2000:]
        with contextlib.suppress(OSError):
            self.get("/status")
            return True
        return False
