"""Reclaim and thrash as a finding: the same measurement that the judge uses, said to people."""

from __future__ import annotations

from typing import Final

from guard.model import Unknown
from sidecar.detect.squeeze import measure
from sidecar.detect.values import Answer, CannotTell, Finding, Quiet, Severity
from sidecar.health.values import Pressure
from sidecar.history import History

NAME: Final = "reclaim"
_SEVERITY: Final = {Pressure.RECLAIM: Severity.NOTICE, Pressure.THRASH: Severity.WARNING}


def detect(history: History) -> tuple[Answer, ...]:
    """Fire while the model stalls on memory; NOTICE for reclaim, WARNING for thrash."""
    found = measure(history)
    if isinstance(found, Unknown):
        return (CannotTell(NAME, (found,)),)
    squeeze = found.value
    if squeeze.pressure is Pressure.NONE:
        return (CannotTell(NAME, squeeze.missing) if squeeze.missing else Quiet(NAME),)
    return (
        Finding(
            detector=NAME,
            severity=_SEVERITY[squeeze.pressure],
            level=history.latest.levels[0].name,
            observed=squeeze.share,
            threshold=squeeze.threshold,
            unit="ratio",
            window_seconds=squeeze.window_seconds,
            text=f"{squeeze.pressure}: {'; '.join(squeeze.because)}",
        ),
    )
