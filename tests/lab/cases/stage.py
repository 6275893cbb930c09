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
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, Self

from tests.lab.kit import loads
from tests.lab.kit.cgroups import MIB, Cgroup, Limits
from tests.lab.kit.namespaces import Apart, inner_pid, served_pid
from tests.lab.kit.ports import free_port
from tests.lab.kit.wait import PACE, until

SMALL: Final = Limits(memory_max_bytes=80 * MIB)
MODEL_UID: Final = 2001
SIDECAR_UID: Final = 2002
OOMGUARD: Final = str(Path(sys.prefix, "bin", "oomguard"))

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a model is started.

    `inside` puts its group below another one. `hidden` puts it into a cgroup namespace, as container runtimes do: it
    then sees no level above its own. `small` are directories that get a tmpfs of so many MiB. `env` is added to its
    environment. `command` stands in place of a load, for programs that are not written in Python.
    """

    limits: Limits = SMALL
    inside: Cgroup | None = None
    hidden: bool = False
    small: Mapping[str, int] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """How the sidecar is started: variables, what stands in place of the command, and as whom; None is root."""

    uid: int | None = SIDECAR_UID
    pid_namespace: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = (OOMGUARD, "sidecar")
    reachable: tuple[str, ...] = ()


USUAL: Final = Way()


class Named(Protocol):
    """Whatever the sidecar knows by this name, however it was started."""

    @property
    def name(self) -> str:
        """The model's name."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model under `oomguard run`. `runner` is the process that waits for it."""

    name: str
    group: Cgroup
    runner: subprocess.Popen[bytes]
    log: Path

    def main_pid(self) -> int:
        """Return the pid of the load itself, the runner's child, once it runs."""
        return until(lambda: served_pid(self.runner.pid), 30, f"{self.name} to run")

    def wait(self) -> int:
        """Return the exit status of the runner, negative for a signal, once it has ended."""
        until(lambda: self.runner.poll() is not None, 30, f"the runner of {self.name} to end")
        return int(self.runner.returncode)


class Stage:
    """See the module's docstring. Leaving the context stops and removes all of it."""

    def __init__(self, sidecar: Sidecar = Sidecar()) -> None:
        self.told: Final[list[Document]] = []
        """Incidents that a case has found right, in order."""
        self.port: Final = free_port()
        self._start = sidecar
        self._exit = contextlib.ExitStack()

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
        own = {"OOMGUARD_DIR": str(self.shared), "OOMGUARD_LISTEN": f"127.0.0.1:{self.port}"}
        with (self.folder / "sidecar.log").open("ab") as log:
            self._sidecar = self._sidecar_group.spawn(
                self._start.command,
                apart=Apart(
                    uid=self._start.uid,
                    pid_namespace=self._start.pid_namespace,
                    reachable=(str(self.shared), *self._start.reachable),
                ),
                env={**own, **self._start.env},
                output=log,
            )
        until(self._answers, 30, "the sidecar to answer")

    def sidecar_pid(self) -> int:
        """Return the pid of the sidecar itself, which runs in namespaces of its own."""
        return until(lambda: inner_pid(self._sidecar.pid), 30, "the sidecar's pid")

    def complaints(self) -> list[str]:
        """Return what the sidecar logged that it should not: errors of its own and lines that are no records."""
        lines = (self.folder / "sidecar.log").read_text().splitlines()
        return [line for line in lines if not line.startswith("{") or json.loads(line)["level"] == "error"]

    def kill_sidecar(self) -> None:
        """Kill it with SIGKILL, as the kernel or a node would."""
        os.kill(self.sidecar_pid(), signal.SIGKILL)
        self._sidecar.wait(30 * PACE)
        assert self._sidecar.returncode != 0

    @contextlib.contextmanager
    def model(self, name: str, *parts: str, way: Way = USUAL) -> Iterator[Model]:
        """Run a load under `oomguard run` in a group of its own, and end and remove both."""
        above = way.inside or self.group
        with above.child(name, way.limits) as group:
            yield self.run(name, group, *parts, way=way)

    def run(self, name: str, group: Cgroup, *parts: str, way: Way = USUAL) -> Model:
        """Run a load under `oomguard run` in a group that may hold other models; the group's end is its end."""
        log = self.folder / f"{name}.log"
        apart = Apart(
            uid=MODEL_UID,
            pid_namespace=False,
            cgroup_namespace=way.hidden,
            reachable=(str(self.shared),),
            small=way.small,
        )
        own = {"OOMGUARD_DIR": str(self.shared), "OOMGUARD_NAME": name, "OOMGUARD_FENCE": "raise"}
        with log.open("wb") as output:
            runner = group.spawn(
                [OOMGUARD, "run", "--", *(way.command or loads.command(*parts))],
                apart=apart,
                env={**own, **way.env},
                output=output,
            )
        return Model(name, group, runner, log)

    def cue(self, name: str) -> Path:
        """Return the file for which a load of the model waits with `when`."""
        return self.shared / f"{name}.cue"

    def give_cue(self, model: Named, *, processes: int = 1, guarded: bool = False) -> None:
        """Let the load go on, once the sidecar sees the model and so many of its processes, or its black box too."""
        if guarded:
            self.wait_guarded(model)
        else:
            self.wait_seen(model, processes=processes)
        self.cue(model.name).touch()

    def wait_guarded(self, model: Named) -> None:
        """Wait for the black box, which the guard inside hands over later than the runner the process."""

        def boxed() -> bool:
            processes = self.wait_seen(model)["sample"]["processes"]
            return any(process["main"] and "value" in process["box"] for process in processes)

        until(boxed, 30, f"the sidecar to have the black box of {model.name}")

    def wait_seen(self, model: Named, *, processes: int = 1) -> Document:
        """Wait until the sidecar has a sample of the model with so many living processes, and return its status."""

        def seen() -> Document | None:
            status = self.get("/status")["models"].get(model.name)
            sample = status and status["sample"]
            living = [process for process in sample["processes"] if process["alive"]] if sample else []
            return status if len(living) >= processes and sample["levels"] else None

        return until(seen, 30, f"the sidecar to see {processes} processes of {model.name}")

    def incidents(self, model: Named) -> list[Document]:
        """Return what the sidecar says about ends of this model and its children, newest first."""
        return [one for one in self.get("/incidents")["incidents"] if one["model"] == model.name]

    def incident(self, model: Named, *, main: bool = True) -> Document:
        """Wait for the incident of the model's main process, or of one of its children, and return it."""

        def found() -> Document | None:
            return next((one for one in self.incidents(model) if one["main"] is main), None)

        return until(found, 30, f"an incident of {model.name}")

    def get(self, path: str) -> Document:
        """Ask the sidecar for a JSON page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30 * PACE)
        with contextlib.closing(connection):
            connection.request("GET", path)
            document: Document = json.load(connection.getresponse())
        return document

    def _answers(self) -> bool:
        assert self._sidecar.poll() is None, (self.folder / "sidecar.log").read_text()[-2000:]
        with contextlib.suppress(OSError):
            self.get("/status")
            return True
        return False
