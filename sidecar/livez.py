"""How often /livez failed in a row, counted as it was answered: the evidence for an end that a probe brought about.

Each asker counts for itself, as a supervisor acts on the answers that it got. Where the kubelet asks, its count is the
one: somebody who looks at the page every second has nobody killed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sidecar.sample import Instant

_MOST_ASKERS: Final = 64  # of all models; who asked longest ago is forgotten
_KUBELET: Final = "kube-probe"  # pkg/probe/http/request.go of Kubernetes: "kube-probe/MAJOR.MINOR"
_STALE_SECONDS: Final = 900.0
"""Who failed a probe is told to stop and not asked again meanwhile; grace periods of model servers are minutes."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: the peer's address and its program without the version."""

    address: str
    program: str


@dataclass(frozen=True, slots=True)
class Failing:
    """An unbroken run of failing answers to one asker, up to its last question."""

    failures: int
    first: Instant
    last: Instant


class LivenessAnswers:
    """Counts in memory. `count` is called as the answer is given, everything else by the tick and at an end."""

    def __init__(self) -> None:
        self._runs: OrderedDict[tuple[str, Asker], Failing | None] = OrderedDict()

    def count(self, asker: Asker, models: Iterable[str], now: Instant, *, passed: bool) -> None:
        """Count one answer to a question about these models."""
        for model in models:
            key = (model, asker)
            run = self._runs.pop(key, None)
            if passed:
                self._runs[key] = None
            else:
                self._runs[key] = Failing(1, now, now) if run is None else Failing(run.failures + 1, run.first, now)
        while len(self._runs) > _MOST_ASKERS:
            self._runs.popitem(last=False)

    def asked(self, model: str) -> bool:
        """Tell whether anybody has asked about this model in its present life."""
        return any(name == model for name, _ in self._runs)

    def failing(self, model: str, now: Instant) -> Failing | None:
        """Give the run of failures that counts: the kubelet's, or else the longest."""
        mine = [(asker, run) for (name, asker), run in self._runs.items() if name == model]
        kubelets = [run for asker, run in mine if asker.program == _KUBELET]
        runs = [run for run in kubelets or [run for _, run in mine] if run is not None]
        fresh = [run for run in runs if now.monotonic_s - run.last.monotonic_s <= _STALE_SECONDS]
        return max(fresh, key=lambda run: run.failures, default=None)

    def forget(self, model: str) -> None:
        """Begin anew: the next process is not the one that failed."""
        for key in [key for key in self._runs if key[0] == model]:
            del self._runs[key]
