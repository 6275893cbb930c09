"""A supervisor as the kubelet is one: probes an address, and after failures in a row stops the container behind it.

As in Kubernetes: a probe every `period_seconds`; one that fails or times out counts; one that passes begins anew; at
`threshold` failures SIGTERM to the first process, and after `grace_seconds` SIGKILL to all that is left.
"""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus

from tests.lab.kit.wait import until

USER_AGENT = "kube-probe/1.33"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What to ask, and the numbers of a livenessProbe."""

    port: int
    path: str
    period_seconds: float = 0.3
    timeout_seconds: float = 1.0
    threshold: int = 3
    grace_seconds: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What is stopped: its first process, whether that has ended, and how all that is left is killed."""

    pid: int
    ended: Callable[[], bool]
    kill_all: Callable[[], None]


def passes(probe: Probe) -> bool:
    """Ask once."""
    connection = http.client.HTTPConnection("127.0.0.1", probe.port, timeout=probe.timeout_seconds)
    with closing(connection):
        try:
            connection.request("GET", probe.path, headers={"User-Agent": USER_AGENT, "Connection": "close"})
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False


def supervise(probe: Probe, container: Container, first: signal.Signals = signal.SIGTERM) -> None:
    """Probe until the threshold is reached, then stop the container: `first` is SIGTERM but for a watchdog."""
    failures = 0
    deadline = time.monotonic() + 60
    while failures < probe.threshold:
        assert time.monotonic() < deadline, f"{probe.path} never failed {probe.threshold} times in a row"
        time.sleep(probe.period_seconds)
        failures = 0 if passes(probe) else failures + 1
    os.kill(container.pid, first)
    try:
        until(container.ended, probe.grace_seconds, "the container to obey")
    except AssertionError:
        container.kill_all()
