"""Which supervisors are asked: those that the settings name, or, by default, those whose token or socket is here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from guard.kernel.reader import Reader
from guard.model import Unknown
from sidecar.clock import Clock
from sidecar.settings import Settings, SupervisorChoice
from sidecar.supervisors import kubernetes_cluster
from sidecar.supervisors.place import Place, place_of
from sidecar.supervisors.values import Source, Subject

SOCKETS: Final = ("/var/run/docker.sock", "/run/podman/podman.sock")
_SYSTEMD: Final = "/run/systemd/system"  # there where systemd is the init (sd_booted(3))
_INSTALL: Final = "pip install 'oomguard[docker]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One supervisor that is to be asked; or, with words instead of a source, why one that was asked for is not."""

    name: str
    make: Callable[[Clock, Callable[[], Sequence[Subject]]], Source] | None = None
    words: str = ""
    advice: str = ""


def find(settings: Settings, environ: Mapping[str, str]) -> tuple[Found, ...]:
    """Look around. Nothing is connected to yet."""
    choice = settings.supervisor
    finders = {
        SupervisorChoice.KUBERNETES: _kubernetes,
        SupervisorChoice.DOCKER: _docker,
        SupervisorChoice.SYSTEMD: _systemd,
    }
    if choice is SupervisorChoice.NONE:
        return ()
    if choice is not SupervisorChoice.AUTO:
        return (finders[choice](settings, environ),)
    found = [one(settings, environ) for one in finders.values()]
    return tuple(one for one in found if one.make is not None)


def names(settings: Settings) -> dict[str | None, str]:
    """Give the names of containers or units by model; None: of any model."""
    return {one.model: one.name for one in settings.supervised.names}


def _place() -> Place:
    data = Reader().read("/proc/self/mountinfo")
    return Place() if isinstance(data, Unknown) else place_of(data.value)


def _kubernetes(settings: Settings, environ: Mapping[str, str]) -> Found:
    name, folder = "Kubernetes API", settings.supervised.service_account
    cluster = kubernetes_cluster.find(environ, folder, settings.supervised.pod)
    if cluster is None:
        advice = "set automountServiceAccountToken and grant integrations/kubernetes/supervisor-role.yaml"
        return Found(name=name, words=f"no token of a service account in {folder}", advice=advice)
    own = _place().container_name

    def make(clock: Clock, _subjects: Callable[[], Sequence[Subject]]) -> Source:
        from sidecar.supervisors.kubernetes import KubernetesSource

        return KubernetesSource(cluster, clock, own=own, directory=settings.dir)

    return Found(name=name, make=make, words=f"{cluster.url}, pod {cluster.pod}")


def _docker(settings: Settings, environ: Mapping[str, str]) -> Found:
    name = "container engine"
    given = settings.supervised.socket or environ.get("DOCKER_HOST")
    url = given or next((f"unix://{path}" for path in SOCKETS if _usable(path)), None)
    if url is None:
        words = f"no socket of Docker or Podman here that can be written to ({', '.join(SOCKETS)})"
        return Found(name=name, words=words, advice="set supervised.socket (OOMGUARD_SUPERVISED_SOCKET)")
    if importlib.util.find_spec("aiodocker") is None:
        return Found(name=name, words="the module aiodocker is not installed", advice=_INSTALL)
    if "://" not in url:
        url = f"unix://{url}"
    own_id, called = _place().container_id, names(settings)

    def make(clock: Clock, subjects: Callable[[], Sequence[Subject]]) -> Source:
        from sidecar.supervisors.docker import DockerSource

        def wanted(container_id: str, container_name: str) -> bool:
            named = any(container_name == one or container_id.startswith(one) for one in called.values())
            return named or any(container_id in group for one in subjects() for group in one.groups)

        return DockerSource(url, clock, own_id=own_id, directory=settings.dir, wanted=wanted)

    return Found(name=name, make=make, words=url)


def _systemd(settings: Settings, _environ: Mapping[str, str]) -> Found:
    name = "systemd"
    if not os.path.isdir(_SYSTEMD) or shutil.which("systemctl") is None:  # noqa: PTH112 - a path as text is all there is
        return Found(name=name, words="systemd is not the init here, or systemctl is missing")
    called = names(settings)

    def make(clock: Clock, subjects: Callable[[], Sequence[Subject]]) -> Source:
        from sidecar.supervisors.systemd import SystemdSource

        return SystemdSource(clock, names=called, subjects=subjects)

    return Found(name=name, make=make, words="its units are asked about behind an end")


def _usable(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode) and os.access(path, os.W_OK)  # noqa: PTH116 - same
    except OSError:
        return False
