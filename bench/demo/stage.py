"""The stage of the demo: cgroups, the sidecar apart as in a container of its own, a model server for each scene.

Leaving the context, by whatever way, stops the processes and removes the cgroups. The shared directory stays: it
holds the record, which is what the demo ends with.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from bench.demo.life import DemoError, Life
from bench.demo.probes import FAILURE_THRESHOLD, PERIOD_SECONDS, TIMEOUT_SECONDS, Opinions, request
from tests.lab.kit.cgroups import Cgroup, Limits, sweep
from tests.lab.kit.namespaces import Apart
from tests.lab.kit.offer import offer
from tests.lab.kit.places import PYTHON
from tests.lab.kit.ports import free_port
from tests.lab.kit.wait import until

MODEL: Final = "demo"
MODEL_UID: Final = 10001
SIDECAR_UID: Final = 65534
READ_IOPS: Final = 2000  # at the kernel's usual 128 KiB a read this is 250 MB/s: a network disk
OOMGUARD: Final = str(Path(sys.prefix, "bin", "oomguard"))


def missing_rights() -> str:
    """Return what this machine or user lacks for the demo, or an empty string."""
    offered = offer()
    if offered.mode is None:
        return offered.reason
    try:
        command = Apart(uid=SIDECAR_UID).wrap(["true"])
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"no process can be started as another user in other namespaces: {error}"
    return "" if tried.returncode == 0 else f"no namespaces can be made: {tried.stderr.strip()}"


def drop_from_page_cache(path: Path) -> None:
    """Page cache is charged to the cgroup that touched it first: let that be the model's."""
    with path.open("rb") as file:
        os.fsync(file)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Stage:
    """See the module's docstring. `folder` gets the shared directory and the logs."""

    def __init__(self, folder: Path, weights: Path) -> None:
        self.shared: Final = folder / "shared"
        self.weights: Final = weights
        self._folder = folder
        self._exit = ExitStack()
        self.opinions: Final = Opinions(free_port(), free_port(), MODEL)

    def __enter__(self) -> Self:
        """Make the groups and start the sidecar; nothing is left behind when that fails."""
        try:
            sweep()
            shutil.rmtree(self.shared, ignore_errors=True)
            self.shared.mkdir(parents=True)
            self.shared.chmod(0o777)  # two users share it, as containers share an emptyDir
            self._group = self._exit.enter_context(Cgroup.make("demo"))
            self._start_sidecar()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop and remove everything but the files."""
        self._exit.close()

    def _start_sidecar(self) -> None:
        log = self._exit.enter_context((self._folder / "sidecar.log").open("wb"))
        settings = {
            "dir": str(self.shared),
            "listen": f"127.0.0.1:{self.opinions.sidecar_port}",
            "probe": f"http://127.0.0.1:{self.opinions.server_port}/health",
            "health_period_seconds": str(PERIOD_SECONDS),
            "health_timeout_seconds": str(TIMEOUT_SECONDS),
            "health_failure_threshold": str(FAILURE_THRESHOLD),
        }
        process = self._group.child("sidecar").spawn(
            [OOMGUARD, "sidecar"],
            apart=Apart(uid=SIDECAR_UID, reachable=(str(self.shared),)),
            env={f"OOMGUARD_{name.upper()}": value for name, value in settings.items()},
            output=log,
        )

        def answers() -> bool:
            if process.poll() is not None:
                raise DemoError(f"the sidecar ended with status {process.returncode}; see {log.name}")
            try:
                return request(self.opinions.sidecar_port, "GET", "/sidecar/readyz", TIMEOUT_SECONDS)[0] == 200
            except OSError:
                return False

        until(answers, 120, "the sidecar to answer", pause_seconds=0.1)

    def life(self, scene: str, limit_bytes: int, *, load: str = "mapped") -> Life:
        """Start a server in a group `model-SCENE` with this memory limit. The page cache of its weights is cold."""
        drop_from_page_cache(self.weights)
        throttle = READ_IOPS if offer().read_throttle else None
        group = self._group.child(f"model-{scene}", Limits(memory_max_bytes=limit_bytes, read_iops=throttle))
        log = self._folder / f"server-{scene}.log"
        serve = [PYTHON, "-m", "bench.demo.server", "--weights", str(self.weights), "--load", load]
        with log.open("wb") as output:
            runner = group.spawn(
                [OOMGUARD, "run", "--", *serve, "--port", str(self.opinions.server_port)],
                apart=Apart(uid=MODEL_UID, pid_namespace=False, cgroup_namespace=False),
                env={"OOMGUARD_DIR": str(self.shared), "OOMGUARD_NAME": MODEL},
                output=output,
            )
        return Life(group, runner, self.opinions.server_port, log)
