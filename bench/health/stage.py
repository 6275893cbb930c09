"""The stage: two sidecars, and a fresh server for each scenario, which both of them and a plain prober judge.

Sidecar C is what the model's `oomguard run` finds: hand-over and guard. Sidecar B gets the same process handed over by
us, as the runner hands over a server that is not Python: kernel files and pidfd, no black box.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Self

from bench.demo.probes import document, request
from bench.demo.stage import drop_from_page_cache
from bench.health.judges import Judge, Plain, Sidecar
from bench.health.pace import HERE, Pace
from bench.health.priority import put_first
from bench.preflight.cases import case_named
from guard.kernel import identity
from guard.kernel.reader import Reader
from guard.link.client import LinkClient, LinkSettings
from guard.link.handover import Who, gather
from guard.link.protocol import Role
from guard.model import LifeId, Unknown
from tests.lab.kit.cgroups import Cgroup, Limits
from tests.lab.kit.namespaces import Apart, inner_pid, served_pid
from tests.lab.kit.offer import offer
from tests.lab.kit.places import PYTHON
from tests.lab.kit.ports import free_port
from tests.lab.kit.wait import until

MODEL: Final = "subject"
OOMGUARD: Final = str(Path(sys.prefix, "bin", "oomguard"))
MODEL_UID: Final = 10001
SIDECAR_UID: Final = 65534


@dataclass(frozen=True, slots=True, kw_only=True)
class Casting:
    """What a scenario's server is started with."""

    limits: Limits = field(default_factory=Limits)
    weights: Path | None = None
    load: str | None = None  # a case of bench.preflight, by its name
    checkpoints: Path | None = None
    workers: int = 0
    through: bool = False  # health pages go through a worker
    grow_mib: int = 0

    @property
    def read(self) -> tuple[Path, ...]:
        """The files that the server will read."""
        weights = () if self.weights is None else (self.weights,)
        if self.load is None or self.checkpoints is None:
            return weights
        path = self.checkpoints / case_named(self.load).file
        return (*weights, *(sorted(path.iterdir()) if path.is_dir() else (path,)))


@dataclass(slots=True)
class Subject:
    """A living server."""

    pid: int
    port: int
    group: Cgroup
    runner: subprocess.Popen[bytes]
    timeout_seconds: float
    go: Path
    """When this file is there the server begins to load."""

    def order(self, fault: str) -> None:
        """Have it do something."""
        request(self.port, "GET", f"/fault/{fault}", 30.0)

    def answers(self, timeout_seconds: float | None = None) -> bool:
        """Whether it answers now, by default within what a probe waits."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return request(self.port, "GET", "/health", timeout_seconds or self.timeout_seconds)[0] == 200
        return False

    def lives(self) -> bool:
        """Whether its process is still there, and not only waits to be reaped."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        return False


class Stage:
    """See the module's docstring. Leaving the context stops and removes everything but the logs."""

    def __init__(self, folder: Path, pace: Pace = HERE) -> None:
        self.folder: Final = folder
        self.pace: Final = pace
        self._exit = ExitStack()
        self._ports: dict[str, int] = {}
        self._groups: dict[str, Cgroup] = {}
        self._logs: dict[str, IO[bytes]] = {}
        self.sidecars: dict[str, subprocess.Popen[bytes]] = {}
        self._lives = 0

    def __enter__(self) -> Self:
        """Start both sidecars."""
        try:
            self._group = self._exit.enter_context(Cgroup.make("health"))
            self.port = free_port()
            for name in ("b", "c"):
                self._make_directory(name)
                self._start_sidecar(name)
            for name in ("b", "c"):
                until(partial(self._answers, name), 120, f"sidecar {name} to answer", pause_seconds=0.1)
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self._exit.close()

    def _make_directory(self, name: str) -> None:
        shared = self.folder / name
        shutil.rmtree(shared, ignore_errors=True)
        shared.mkdir(parents=True)
        shared.chmod(0o777)
        self._ports[name] = free_port()
        self._logs[name] = self._exit.enter_context((self.folder / f"sidecar-{name}.log").open("wb"))
        self._groups[name] = self._group.child(f"sidecar-{name}")

    def _start_sidecar(self, name: str) -> None:
        shared = self.folder / name
        settings = {
            "dir": shared,
            "listen": f"127.0.0.1:{self._ports[name]}",
            "probe": f"http://127.0.0.1:{self.port}/health",
            "sight": "handover",
            **self.pace.settings(),
        }
        self.sidecars[name] = self._groups[name].spawn(
            [OOMGUARD, "sidecar"],
            apart=Apart(uid=SIDECAR_UID, reachable=(str(shared),)),
            env={f"OOMGUARD_{key.upper()}": str(value) for key, value in settings.items()},
            output=self._logs[name],
        )
        put_first(self.sidecars[name].pid)

    def restart_sidecars(self) -> None:
        """Kill both sidecars and start them again on the same directories, as a supervisor would."""
        for group in self._groups.values():
            group.kill_all()
        for name in self.sidecars:
            self._start_sidecar(name)

    def _answers(self, name: str) -> bool:
        if self.sidecars[name].poll() is not None:
            log = (self.folder / f"sidecar-{name}.log").read_text()
            raise OSError(f"sidecar {name} ended with {self.sidecars[name].returncode}: {log[-1000:]}")
        with contextlib.suppress(OSError):
            return request(self._ports[name], "GET", "/sidecar/readyz", 5.0)[0] == 200
        return False

    def sidecar_pids(self) -> list[int]:
        """Give the pids of the sidecars themselves."""
        return [until(partial(inner_pid, one.pid), 60, "the sidecar's pid") for one in self.sidecars.values()]

    def judges(self) -> tuple[Judge, ...]:
        """Give three judges for the next server."""
        return (
            Plain("A", self.pace, port=self.port),
            Sidecar("B", self.pace, port=self._ports["b"], model=MODEL),
            Sidecar("C", self.pace, port=self._ports["c"], model=MODEL),
        )

    @contextlib.contextmanager
    def subject(self, casting: Casting) -> Iterator[Subject]:
        """Run a server, seen by both sidecars; it is killed and its group removed at the end."""
        self._lives += 1
        for path in casting.read:
            drop_from_page_cache(path)
        go = self.folder / "go"
        go.unlink(missing_ok=True)
        command = [PYTHON, "-m", "bench.health.server", "--port", str(self.port), "--go", str(go)]
        for flag in ("weights", "load", "checkpoints", "workers"):
            if value := getattr(casting, flag):
                command += [f"--{flag}", str(value)]
        command += ["--through"] if casting.through else []
        log = self.folder / "server.log"
        with self._group.child(f"model-{self._lives}", casting.limits) as group, log.open("ab") as output:
            runner = group.spawn(
                [OOMGUARD, "run", "--", *command],
                apart=Apart(uid=MODEL_UID, pid_namespace=False, cgroup_namespace=False),
                env={
                    "OOMGUARD_DIR": str(self.folder / "c"),
                    "OOMGUARD_NAME": MODEL,
                    "MODEL_GROW_MIB": str(casting.grow_mib),
                },
                output=output,
            )
            put_first(runner.pid)
            pid = until(lambda: served_pid(runner.pid), 120, "the server to run")
            link = self._hand_over_to_b(pid)
            try:
                for name in ("b", "c"):
                    until(partial(self._sees, name, pid), 120, f"sidecar {name} to see the server")
                yield Subject(pid, self.port, group, runner, self.pace.timeout_seconds, go)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                link.close()

    def _sees(self, name: str, pid: int) -> bool:
        view = self._view(name)
        sample = view and view["sample"]
        return bool(sample) and any(one["life"]["pid"] == pid and one["alive"] for one in sample["processes"])

    def state(self, name: str) -> str:
        """Give what a sidecar says of the model now; nothing where it is too slow to be asked."""
        view = self._view(name)
        return str(view["judgement"]["state"]) if view else ""

    def _view(self, name: str) -> Mapping[str, Any] | None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            view: Mapping[str, Any] | None = document(self._ports[name], "/status")["models"].get(MODEL)
            return view
        return None

    def _hand_over_to_b(self, pid: int) -> LinkClient:
        reader = Reader()
        boot, ticks = identity.boot_id(reader), identity.start_ticks(reader, pid)
        assert not isinstance(boot, Unknown)
        assert not isinstance(ticks, Unknown)
        life = LifeId(boot.value, pid, ticks.value, os.urandom(8).hex())
        who = Who(name=MODEL, life=life, parent_session=None, command="server", role=Role.RUNNER)
        path = str(self.folder / "b" / "link.sock")
        link = LinkClient(LinkSettings(path), lambda: gather(reader, who, pid=pid), lambda _: None)
        link.start()
        return link


def throttled(memory_mib: int | None, iops: int | None) -> Limits:
    """Make limits; the disk is throttled where this machine can."""
    return Limits(
        memory_max_bytes=None if memory_mib is None else memory_mib << 20,
        read_iops=iops if offer().read_throttle else None,
    )
