"""What can be set, with the unit, the reason for the default and the meaning of None beside every field.

Plain values; `sidecar.settings_load` reads them from a TOML file, `OOMGUARD_*` variables and flags.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final
from urllib.parse import urlsplit

from sidecar.health.values import Rules


@dataclass(frozen=True, slots=True)
class Between:
    """The closed range a number must lie in; its unit is in the name of the field."""

    low: float
    high: float


class SightChoice(StrEnum):
    """Which way of seeing to use. `auto` takes the best one that works and moves up when a better one appears."""

    AUTO = "auto"
    HANDOVER = "handover"
    SHARED_PID = "shared_pid"
    HOST_CGROUP = "host_cgroup"
    OWN = "own"


class SupervisorChoice(StrEnum):
    """Who is asked how a container ended. `auto`: each whose token or socket is here."""

    AUTO = "auto"
    NONE = "none"
    KUBERNETES = "kubernetes"
    DOCKER = "docker"
    SYSTEMD = "systemd"


class LogLevel(StrEnum):
    """Least severity that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class ProbeKind(StrEnum):
    """How the model is probed."""

    HTTP = "http"
    TCP = "tcp"
    GRPC = "grpc"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0 takes any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `HOST:PORT`, `:PORT` or `[V6]:PORT`; raise `ValueError` otherwise."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - last port
            raise ValueError("HOST:PORT, like 0.0.0.0:9475")
        return cls(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - the kubelet dials the pod's address

    def __str__(self) -> str:
        """Give the text that `parse` reads."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_LONGEST_LABEL: Final = 63
_LONGEST_SERVICE: Final = 127  # of a gRPC health check, see sidecar.collect.probe_grpc


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """What to probe: a URL for `http`, `HOST:PORT` for `tcp`, `HOST:PORT[/SERVICE]` for `grpc`, empty for `none`.

    `model` None: any model.
    """

    model: str | None
    kind: ProbeKind
    where: str

    @classmethod
    def parse(cls, text: str) -> ProbeTarget:
        """Read `[NAME=]URL` with an http, https, tcp or grpc URL, or `[NAME=]none`; raise `ValueError` otherwise."""
        head, equals, tail = text.partition("=")
        named = bool(equals) and "/" not in head and ":" not in head
        model, url = (head, tail) if named else (None, text)
        if url == "none":
            return cls(model, ProbeKind.NONE, "")
        form = "[NAME=]http://HOST:PORT/PATH, tcp://HOST:PORT, grpc://HOST:PORT[/SERVICE] or none"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as exc:  # of brackets, or of a port above 65535
            raise ValueError(f"{form}: {exc}") from exc
        if model == "" or not parts.hostname or parts.scheme not in {"http", "https", "tcp", "grpc"} or port == 0:
            raise ValueError(form)
        if not _is_host(parts.hostname) or len(url.split()) != 1:
            raise ValueError(f"{form}, of a host that can be")
        if parts.scheme in {"http", "https"}:
            return cls(model, ProbeKind.HTTP, url)
        if "@" in parts.netloc:
            raise ValueError(f"{form}: only http takes a user")
        if port is None:
            raise ValueError(f"a port, like {parts.scheme}://127.0.0.1:8000")
        if parts.scheme == "grpc":
            if len(parts.path) > _LONGEST_SERVICE:
                raise ValueError(f"{form}, of a service of at most {_LONGEST_SERVICE} letters")
            return cls(model, ProbeKind.GRPC, parts.netloc + parts.path.rstrip("/"))
        return cls(model, ProbeKind.TCP, parts.netloc)


def _is_host(name: str) -> bool:
    """Tell what can be looked up (RFC 1035): elsewhere every probe would be an error, and held against the model."""
    return all(0 < len(label) <= _LONGEST_LABEL for label in name.removesuffix(".").split("."))


@dataclass(frozen=True, slots=True)
class SupervisedName:
    """What a supervisor calls the container or unit of a model. `model` None: any model."""

    model: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> SupervisedName:
        """Read `[MODEL=]NAME`; raise `ValueError` otherwise."""
        model, equals, name = text.partition("=")
        if not equals:
            model, name = "", text
        if (equals and not model) or not name or "/" in name or " " in name:
            raise ValueError("[MODEL=]NAME, like llm=server or llm.service")
        return cls(model or None, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickSettings:
    """How often the model is read."""

    shortest_seconds: Annotated[float, Between(0.05, 60)] = 0.1
    """Pause when a limit is near. 0.1 s catches 200 MiB/s of growth five times in its last 100 MiB."""
    longest_seconds: Annotated[float, Between(0.05, 60)] = 1.0
    """Pause when nothing moves. One read a second costs nothing and gives rates over 1, 5 and 10 s."""
    fixed_seconds: Annotated[float, Between(0.05, 60)] | None = None
    """The same pause always, for benchmarks. None: between the two above, by time to limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """Which process or container is the model, where no hand-over says so."""

    process: str | None = None
    """Shared PID namespace: name of the model's process (comm, or the program's base name).
    None: the first foreign process that has torch mapped, else the oldest one that is not a pause process."""
    pod_uid: str | None = None
    """Host cgroup: UID of the pod (downward API, metadata.uid). None: found by `container_id` alone."""
    container_id: str | None = None
    """Host cgroup: id of the model's container or its first 12 digits. None: the largest of the pod but our own."""
    host_cgroup_root: str = "/host/sys/fs/cgroup"
    """Where the host's /sys/fs/cgroup is mounted read-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """Size of the record in the shared directory."""

    max_bytes: Annotated[int, Between(1 << 20, 1 << 34)] = 64 << 20
    """Bytes on disk. 64 MiB hold some nine hours of one model, at a sample a second of 2 KB at three levels, and fit an
    emptyDir that counts as memory."""
    keep_seconds: Annotated[float, Between(60, 366 * 86400)] = 7 * 86400.0
    """Seconds after which samples are dropped; incidents stay longer. A week covers a weekend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedSettings:
    """How a supervisor is reached, and what it calls our models."""

    names: tuple[SupervisedName, ...] = ()
    """`[MODEL=]NAME` of a container (name, or id) or systemd unit, separated by commas. Empty: by the path of the
    model's cgroup, by its name, or the only container that shares our directory."""
    pod: str | None = None
    """Name of our own pod (downward API, metadata.name). None: HOSTNAME, which is it unless the pod sets another."""
    service_account: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    """Directory with token, ca.crt and namespace; where the kubelet puts them by itself."""
    socket: str | None = None
    """Socket of Docker or Podman, a path or a URL. None: DOCKER_HOST, else the usual paths where we may write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of it."""

    dir: str = "/run/oomguard"
    """Directory shared with the model: socket, black boxes, record."""
    name: str = "model"
    """Name of the model until one hands over and gives its own."""
    listen: Address = Address("0.0.0.0", 9475)  # noqa: S104 - the kubelet dials the pod's address
    """HOST:PORT of the health pages. All addresses, as the kubelet dials the pod's; the pages hold no secrets."""
    grpc_listen: Address | None = None
    """HOST:PORT where the answers are given as gRPC health too (extra `grpc`, 21 MiB more). None: nowhere."""
    probe: tuple[ProbeTarget, ...] = ()
    """How the sidecar probes the model: `http://127.0.0.1:8000/health`, `tcp://127.0.0.1:8000`, `none`, or one
    `NAME=URL` a model, separated by commas. Empty: no probe, so only the process itself is judged."""
    sight: SightChoice = SightChoice.AUTO
    """Way of seeing the model."""
    peer_uids: tuple[Annotated[int, Between(0, 2**32 - 2)], ...] | None = None
    """User ids that may hand over. None: any, as who can reach the shared directory is the pod's affair."""
    supervisor: SupervisorChoice = SupervisorChoice.AUTO
    """Who is asked how the model's container ended, and how often it restarted. Reads only, and off where nothing
    was put in our reach."""
    log_level: LogLevel = LogLevel.INFO
    """Least severity logged, one JSON line each, on standard error."""
    health: Rules = field(default_factory=Rules)
    tick: TickSettings = field(default_factory=TickSettings)
    target: TargetSettings = field(default_factory=TargetSettings)
    record: RecordSettings = field(default_factory=RecordSettings)
    supervised: SupervisedSettings = field(default_factory=SupervisedSettings)

    def probe_for(self, model: str) -> ProbeTarget | None:
        """Give the target named for this model, else the one for any model, else None."""
        named = [t for t in self.probe if t.model == model]
        return next(iter(named or [t for t in self.probe if t.model is None]), None)
