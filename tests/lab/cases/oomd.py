"""A unit that systemd-oomd kills: played where systemd is the first process, in the machine."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lab.cases.stage import MODEL_UID, OOMGUARD, Sidecar, Stage
from tests.lab.cases.verdicts import ended
from tests.lab.kit import loads
from tests.lab.kit.cgroups import NotOfferedError
from tests.lab.kit.namespaces import Apart
from tests.lab.kit.places import ALONE

_OOMD: Final = Path("/lib/systemd/systemd-oomd")
_RUN: Final = Path("/run/systemd")
_NO_DEFAULTS: Final = "[Unit]\nDefaultDependencies=no\n"
_SLICE: Final = f"{_NO_DEFAULTS}[Slice]\nManagedOOMMemoryPressure=kill\nManagedOOMMemoryPressureLimit=1%\n"
_KILLER: Final = f"{_NO_DEFAULTS}[Service]\nRuntimeDirectory=systemd/oom\nExecStart={_OOMD}\n"
"""Debian's own unit waits for a bus; systemd tells what to watch to a unit of this name alone."""
_SOON: Final = "[OOM]\nDefaultMemoryPressureDurationSec=1s\n"


@dataclass(frozen=True, slots=True)
class Unit:
    """A model that systemd started."""

    name: str


def case_systemd_oomd() -> None:
    """Debian's systemd-oomd kills a unit that thrashes: userspace_oom, live and by the journal that it leaves."""
    _need_systemd()
    # systemctl gets no answer in another PID namespace: the manager has no pid there (ENODATA)
    sidecar = Sidecar(uid=None, pid_namespace=False, env={"OOMGUARD_SUPERVISOR": "systemd"})
    with Stage(sidecar) as stage, _thrashing(stage, "llm") as model:
        stage.wait_seen(model)
        _start("systemd-oomd.service")
        stage.give_cue(model)
        incident = ended(stage, model, "userspace_oom", "high")
        assert incident["fields"]["signal"] == "SIGKILL", incident
        journal = _run("journalctl", "--no-pager")
        told = json.loads(_run(OOMGUARD, "explain", "--json", "-", given=journal))["incidents"]
        assert [one["class"] for one in told] == ["userspace_oom"], told
        assert told[0]["fields"]["killer"] == "systemd-oomd", told
        assert told[0]["fields"]["cgroup"].endswith("/llm.service"), told


def _need_systemd() -> None:
    if not ALONE or Path("/proc/1/comm").read_text().strip() != "systemd":
        raise NotOfferedError("it takes systemd as the first process: played in the machine alone")
    if not _OOMD.exists():
        raise NotOfferedError("systemd-oomd is not installed: apt-get install systemd-oomd")


@contextmanager
def _thrashing(stage: Stage, name: str) -> Iterator[Unit]:
    """Run a model as a service below a slice that systemd-oomd watches: it never kills the unit that is marked."""
    weights = str(stage.folder / "weights")
    loads.make_file(weights, 120)
    script = stage.folder / "model.sh"
    apart = Apart(uid=MODEL_UID, pid_namespace=False, cgroup_namespace=False, reachable=(str(stage.shared),))
    command = [OOMGUARD, "run", "--", *loads.command(f"thrash path={weights} threads=2 when={stage.cue(name)}")]
    own = {"OOMGUARD_DIR": str(stage.shared), "OOMGUARD_NAME": name, "OOMGUARD_FENCE": "raise"}
    exports = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in own.items())
    script.write_text(f"{exports}exec {shlex.join(apart.wrap(command))}\n")
    _write(
        {
            "system/models.slice": _SLICE,
            f"system/{name}.service": f"{_NO_DEFAULTS}[Service]\nSlice=models.slice\nMemoryMax=80M\n"
            f"ExecStart=/bin/sh {script}\n",
            "system/systemd-oomd.service": _KILLER,
            "oomd.conf.d/lab.conf": _SOON,
        }
    )
    _start(f"{name}.service")
    try:
        yield Unit(name)
    finally:
        _run("systemctl", "stop", f"{name}.service", "systemd-oomd.service")


def _write(files: dict[str, str]) -> None:
    for name, text in files.items():
        (_RUN / name).parent.mkdir(exist_ok=True)
        (_RUN / name).write_text(text)
    _run("systemctl", "daemon-reload")


def _start(unit: str) -> None:
    _run("systemctl", "start", unit)


def _run(*command: str, given: str = "") -> str:
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout
