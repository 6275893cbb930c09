"""The judges: a plain prober with the kubelet's rules, and a sidecar asked through its own page."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bench.demo.probes import request
from bench.health.pace import Pace

_OK: Final = 200
_ASK_SECONDS: Final = 0.25


@dataclass(slots=True)
class Judge:
    """One judge of one life. `failed_s` is on the monotonic clock."""

    name: str
    pace: Pace
    failed_s: float | None = None
    said: str = ""
    slowest_seconds: float = 0.0
    """Longest that it took to say anything."""
    error: str = ""
    """Why it could not go on judging: then what it says means nothing."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Judge from now on, in a thread."""
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"judge {self.name}")
        self._thread.start()

    def stop(self) -> None:
        """Stop judging."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)

    def _run(self) -> None:
        try:
            self.judge()
        except Exception as error:  # noqa: BLE001 - a judge that is gone must not pass for one that is content
            self.error = f"judge {self.name}: {type(error).__name__}: {error}"

    def judge(self) -> None:
        """Ask until failed or stopped."""
        raise NotImplementedError


@dataclass(slots=True)
class Plain(Judge):
    """Probes the server itself, a new connection each period: so many failures in a row, and on hold after that.

    Until the first success it is the startup probe, with the same start-up time as the sidecars give.
    """

    port: int = 0

    def judge(self) -> None:
        """Probe until failed or stopped."""
        in_a_row, started, first_s = 0, False, time.monotonic()
        while not self._stop.is_set() and self.failed_s is None:
            began = time.monotonic()
            answers = self._answers()
            started = started or answers
            in_a_row = 0 if answers or not started else in_a_row + 1
            late = not started and time.monotonic() - first_s > self.pace.startup_seconds
            if late or in_a_row >= self.pace.failure_threshold:
                self.failed_s = time.monotonic()
            self._stop.wait(max(0.0, began + self.pace.period_seconds - time.monotonic()))

    def _answers(self) -> bool:
        try:
            return 200 <= request(self.port, "GET", "/health", self.pace.timeout_seconds)[0] < 400
        except (OSError, http.client.HTTPException) as error:
            self.said = type(error).__name__
            return False


@dataclass(slots=True)
class Sidecar(Judge):
    """Asks a sidecar about the model, often, as any of its answers may be the one that the kubelet gets."""

    port: int = 0
    model: str = ""
    states: list[str] = field(default_factory=list)
    """What it said, each change once."""

    def judge(self) -> None:
        """Ask until failed or stopped."""
        while not self._stop.wait(_ASK_SECONDS) and self.failed_s is None:
            began = time.monotonic()
            try:
                status, body = request(self.port, "GET", f"/livez/{self.model}", 10.0)
            except (OSError, http.client.HTTPException):
                continue  # a sidecar that cannot be asked says nothing about the model
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
            answer: Mapping[str, Any] = json.loads(body)["models"][self.model]
            state = answer.get("state", "unseen")
            if not self.states or self.states[-1] != state:
                self.states.append(state)
            self.said = answer["reason"]
            if status != _OK:
                self.failed_s = time.monotonic()
