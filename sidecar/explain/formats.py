"""What kind of text a line comes from, for saying how an input was read. Parsing does not depend on it."""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.values import Clock, Line

_STATUS: Final = re.compile(r"^\s{2,}(?:State|Last State|Exit Code|Restart Count):\s")
_DOCKER: Final = re.compile(r'^\s*"?(?:OOMKilled|ExitCode|FinishedAt)"?\s*:')
_YAML: Final = re.compile(r"^\s*(?:lastState|containerStatuses|exitCode|qosClass|phase|lastFailureInfo):")
_JSON: Final = re.compile(r'^\s*"(?:lastState|containerStatuses|exitCode|restartCount)"\s*:')
_EVENTS: Final = re.compile(r"\b(?:Unhealthy|Killing|BackOff|OOMKilling|Evicted|FailedScheduling)\s+\S")
_UNIT: Final = re.compile(r"^\s+(?:Loaded|Active|Main PID): ")
_COUNTERS: Final = re.compile(r"^(?:memory\.\w+|oom_kill|hierarchical_memory_limit|total_rss|under_oom|pgmajfault)[ =]")


def kind_of(line: Line) -> str | None:
    """Name the kind of one line, None where it is nothing special."""
    if line.kernel and line.program is None:
        return "kernel ring buffer"
    if line.kernel or line.program == "kernel":
        return "journal or syslog"
    if line.program is not None and line.stamp is not None:
        return "journal or syslog"
    if line.stamp is not None:
        return "log with times" if line.stamp.clock is Clock.WALL else "syslog"
    return next((name for name, pattern in _KINDS if pattern.search(line.whole)), None)


_KINDS: Final = (
    ("pod YAML", _YAML),
    ("pod JSON", _JSON),
    ("docker or podman inspect", _DOCKER),
    ("kubectl describe", _STATUS),
    ("Kubernetes events", _EVENTS),
    ("systemctl status", _UNIT),
    ("cgroup files", _COUNTERS),
)
