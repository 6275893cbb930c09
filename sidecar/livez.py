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

_MOST_ASKERS: Final = 16  # of a model; who asked longest ago is forgotten, the kubelet last
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
        self._runs: dict[str, OrderedDict[Asker, Failing | None]] = {}

    def count(self, asker: Asker, models: Iterable[str], now: Instant, *, passed: bool) -> None:
        """Count one answer to a question about these models."""
        for model in models:
            runs = self._runs.setdefault(model, OrderedDict())
            run = runs.pop(asker, None)
            if passed:
                runs[asker] = None
            else:
                runs[asker] = Failing(1, now, now) if run is None else Failing(run.failures + 1, run.first, now)
            if len(runs) > _MOST_ASKERS:
                del runs[next((one for one in runs if one.program != _KUBELET), next(iter(runs)))]

    def asked(self, model: str) -> bool:
        """Tell whether anybody has asked about this model in its present life."""
        return bool(self._runs.get(model))

    def failing(self, model: str, now: Instant) -> Failing | None:
        """Give the run of failures that counts: the kubelet's, or else the longest."""
        mine = list(self._runs.get(model, {}).items())
        kubelets = [run for asker, run in mine if asker.program == _KUBELET]
        runs = [run for run in kubelets or [run for _, run in mine] if run is not None]
        fresh = [run for run in runs if now.monotonic_s - run.last.monotonic_s <= _STALE_SECONDS]
        return max(fresh, key=lambda run: run.failures, default=None)

    def forget(self, model: str) -> None:
        """Begin anew: the next process is not the one that failed."""
        self._runs.pop(model, None)
