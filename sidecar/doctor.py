"""What this place offers: each capability ok, limited or missing, with what to do about it."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import select
import socket
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from guard.kernel import locate, psi
from guard.kernel.reader import KeptFile, Reader
from guard.kernel.values import CgroupVersion
from guard.model import Known, Unknown
from sidecar import distribution
from sidecar.collect import exit_status as ends
from sidecar.collect.node import NodeReader
from sidecar.sample import SightKind
from sidecar.settings import Settings
from sidecar.sight.chooser import Chooser, hands_over
from sidecar.sight.handover_check import close_process
from sidecar.sight.levels import close_levels

_FEW_BYTES: Final = 16 << 20


class Grade(StrEnum):
    """How well something works here."""

    OK = "ok"
    LIMITED = "limited"  # works less well, the main job is done
    MISSING = "missing"  # the main job suffers


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `advice` is empty where nothing is to be done."""

    subject: str
    grade: Grade
    text: str
    advice: str = ""


def examine(settings: Settings) -> tuple[Finding, ...]:
    """Look at everything; nothing here changes anything but a probe file in the shared directory."""
    reader = Reader()
    checks: tuple[Callable[[], Finding], ...] = (
        _packages,
        lambda: _cgroup(reader),
        lambda: _pressure(reader),
        lambda: _node(reader),
        lambda: _directory(settings),
        lambda: _record(settings),
        lambda: _handover(settings),
        lambda: _sight(settings, reader),
        lambda: _kernel_log(reader),
        _wait_status,
        lambda: _supervisors(settings),
        lambda: _port(settings),
    )
    return tuple(check() for check in checks)


def as_text(findings: tuple[Finding, ...]) -> str:
    """Give the report for people."""
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.grade.value:8} {finding.subject:{width}}  {finding.text}")
        if finding.advice:
            lines.append(f"{'':8} {'':{width}}  -> {finding.advice}")
    return "\n".join(lines) + "\n"


def as_json(findings: tuple[Finding, ...]) -> str:
    """Give the report for programs."""
    return json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=2) + "\n"


def exit_status(findings: tuple[Finding, ...]) -> int:
    """Give 0 where nothing is missing, else 1."""
    return int(any(finding.grade is Grade.MISSING for finding in findings))


def _packages() -> Finding:
    complaint = distribution.complaint(distribution.imported_packages())
    if complaint is not None:
        return Finding("packages", Grade.MISSING, complaint)
    try:
        importlib.import_module("sidecar.run")
    except ImportError as exc:
        return Finding("packages", Grade.MISSING, f"the daemon cannot start: {exc}", "pip install 'oomguard[sidecar]'")
    return Finding("packages", Grade.OK, f"oomguard {distribution.release() or 'from a checkout'}")


def _cgroup(reader: Reader) -> Finding:
    chain = locate.locate(reader)
    if isinstance(chain, Unknown):
        advice = "mount /sys/fs/cgroup; without it the models can still hand over theirs"
        return Finding("cgroup", Grade.LIMITED, str(chain), advice)
    own = chain.value.levels[0]
    mode = "v2" if own.version is CgroupVersion.V2 else "v1 with v2 beside it" if own.unified_dir else "v1"
    hidden = ", ancestors hidden" if chain.value.hidden_ancestors else ""
    return Finding("cgroup", Grade.OK, f"{mode}, {len(chain.value.levels)} levels visible from here{hidden}")


def _pressure(reader: Reader) -> Finding:
    data = reader.read("/proc/pressure/memory")
    parsed = data if isinstance(data, Unknown) else psi.parse(data.value, "/proc/pressure/memory")
    if isinstance(parsed, Unknown):
        advice = "boot the kernel with psi=1; until then only refaults and faults tell reclaim, and never thrash"
        return Finding("pressure", Grade.LIMITED, str(parsed), advice)
    return Finding("pressure", Grade.OK, "pressure stall information is on")


def _node(reader: Reader) -> Finding:
    node = NodeReader(reader)
    try:
        sample = node.read()
    finally:
        node.close()
    if isinstance(sample.meminfo, Unknown):
        return Finding("node", Grade.LIMITED, str(sample.meminfo), "mount /proc; node-wide causes cannot be told")
    if node.lxcfs:
        return Finding("node", Grade.LIMITED, "LXCFS stands in for /proc/meminfo", "the node's memory is not seen")
    swap = sample.meminfo.value.get("SwapTotal")
    words = "an unknown amount of" if swap is None else f"{swap >> 20} MiB of" if swap else "no"
    return Finding("node", Grade.OK, f"{sample.meminfo.value.get('MemTotal', 0) >> 20} MiB of memory, {words} swap")


def _directory(settings: Settings) -> Finding:
    path = settings.dir
    advice = f"mount one volume (emptyDir) at {path} in both containers, writable for both users"
    try:
        found = os.statvfs(path)
    except OSError as exc:
        return Finding("directory", Grade.MISSING, f"{path}: {exc.strerror}", advice)
    if not os.access(path, os.W_OK | os.X_OK):
        return Finding("directory", Grade.MISSING, f"{path} is not writable for user {os.getuid()}", advice)
    free = found.f_bavail * found.f_frsize
    if free < _FEW_BYTES:
        return Finding("directory", Grade.LIMITED, f"{path} has {free >> 10} KiB left", "give the volume more room")
    return Finding("directory", Grade.OK, f"{path} is writable, {free >> 20} MiB free")


def _record(settings: Settings) -> Finding:
    path = f"{settings.dir}/record.sqlite"
    if not os.path.exists(path):  # noqa: PTH110 - a path as text is all there is
        return Finding("record", Grade.OK, "none yet; the daemon makes it")
    try:
        from sidecar.record.reading import RecordError, open_record
    except ImportError as exc:  # a missing package has a line of its own
        return Finding("record", Grade.LIMITED, f"{path} cannot be read without the package {exc.name}")
    try:
        with open_record(path) as record:  # beside a sidecar of another user it leaves no file of its own
            incidents = record.count_incidents()
    except RecordError as exc:
        return Finding("record", Grade.LIMITED, str(exc), "a damaged record is moved aside at the next start")
    return Finding("record", Grade.OK, f"{path} holds {incidents} incidents")


def _handover(settings: Settings) -> Finding:
    path = f"{settings.dir}/link.sock"
    if not hands_over(settings.sight):
        return Finding("hand-over", Grade.LIMITED, f"sight is set to {settings.sight}", "unset it to allow hand-overs")
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116 - a path as text is all there is
    except OSError:
        return Finding("hand-over", Grade.OK, f"the daemon will listen at {path}")
    if not is_socket:
        return Finding("hand-over", Grade.MISSING, f"{path} is not a socket", "remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(0)
        code = client.connect_ex(path)
    if code == 0:
        return Finding("hand-over", Grade.OK, f"a sidecar listens at {path}")
    if code == errno.ECONNREFUSED:
        return Finding("hand-over", Grade.OK, f"{path} is left over; the daemon replaces it")
    return Finding("hand-over", Grade.MISSING, f"{path}: {os.strerror(code)}", "check the rights of the directory")


def _sight(settings: Settings, reader: Reader) -> Finding:
    chooser = Chooser(settings, reader)
    seen = chooser.look()
    reasons = "; ".join(f"{kind.value}: {why}" for kind, why in chooser.refused.items())
    advice = "start the server with `oomguard run -- COMMAND` or import guard, so that it hands over"
    if seen is None:
        return Finding("sight", Grade.LIMITED, f"only a hand-over can show a model here; {reasons}".strip("; "), advice)
    levels, kind = len(seen.levels), seen.kind
    close_levels(seen.levels)
    for process in seen.processes:
        close_process(process)
    if kind is SightKind.OWN:
        return Finding("sight", Grade.LIMITED, f"without a hand-over only our own container is seen; {reasons}", advice)
    return Finding("sight", Grade.OK, f"{kind.value} shows a model with {levels} levels, until one hands over")


def _kernel_log(reader: Reader) -> Finding:
    kept = reader.keep("/dev/kmsg")
    first = kept.read_next() if isinstance(kept, KeptFile) else kept
    if isinstance(kept, KeptFile):
        kept.close()
    if isinstance(first, Unknown):
        advice = "not needed; with it (hostPath /dev/kmsg and CAP_SYSLOG) global and ancestor kills are told for sure"
        return Finding("kernel log", Grade.LIMITED, str(first), advice)
    return Finding("kernel log", Grade.OK, "/dev/kmsg can be read")


def _wait_status() -> Finding:
    """Let a child end with status 3 and see whether its pidfd still knows after the reap."""
    child = os.fork()
    if child == 0:
        os._exit(3)
    try:
        pidfd = os.pidfd_open(child)
    except OSError as exc:
        os.waitpid(child, 0)
        advice = "kernel 5.3 and a seccomp profile that allows pidfd_open; `oomguard run` tells exit statuses as well"
        return Finding("exit status", Grade.LIMITED, f"pidfd_open: {exc.strerror}", advice)
    try:
        select.select([pidfd], [], [], 5.0)
        os.waitpid(child, 0)
        told = ends.from_pidfd(pidfd)
    finally:
        os.close(pidfd)
    if isinstance(told, Known) and told.value.exit_code == 3:  # noqa: PLR2004 - what the child exits with
        return Finding("exit status", Grade.OK, "pidfds tell how a process ended, in this PID namespace and below")
    return Finding("exit status", Grade.LIMITED, str(told), "start the server with `oomguard run`, which tells it")


def _supervisors(settings: Settings) -> Finding:
    from sidecar.supervisors.examine import examine as ask  # only the doctor asks while it waits

    found = ask(settings, os.environ)
    return Finding("supervisor", Grade.OK if found.good else Grade.LIMITED, found.text, found.advice)


def _port(settings: Settings) -> Finding:
    listen = settings.listen
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((listen.host, listen.port))
        except UnicodeError as exc:  # no host can have such a name
            return Finding("port", Grade.MISSING, f"{listen}: {exc}", "set listen (OOMGUARD_LISTEN)")
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                advice = "fine if the sidecar runs already, else set listen (OOMGUARD_LISTEN)"
                return Finding("port", Grade.LIMITED, f"{listen} is in use{_holder(listen.port)}", advice)
            return Finding("port", Grade.MISSING, f"{listen}: {exc.strerror}", "set listen (OOMGUARD_LISTEN)")
    return Finding("port", Grade.OK, f"{listen} is free")


def _holder(port: int) -> str:
    """Name the process that listens on a TCP port, where this user may see it."""
    import psutil  # 2 MiB, and the daemon imports this module for nothing else

    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and getattr(connection.laddr, "port", None) == port
            if listens and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    return ""
