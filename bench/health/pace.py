"""The numbers that all judges of a run share, and the bounds that follow from them.

An idle hang must be failed within the plain rule's own worst case, one period more, and two seconds for ticks. Under
pressure: 30 s with the guard; without it, the cap from the plain rule's failure on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_TICKS_SECONDS: Final = 2.0
_PRESSED_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Kubernetes' numbers with its time scaled, the same for all judges. All but the threshold are seconds."""

    period_seconds: float
    timeout_seconds: float
    failure_threshold: int = 3
    startup_seconds: float = 120.0
    credit_seconds: float
    cap_seconds: float
    tick_seconds: float = 0.1  # the sidecars' shortest

    @property
    def plain_seconds(self) -> float:
        """The longest that the plain rule takes to fail a server that answers no more."""
        return self.failure_threshold * self.period_seconds + self.timeout_seconds

    @property
    def idle_seconds(self) -> float:
        """The bound of a hang without pressure."""
        return self.plain_seconds + self.period_seconds + _TICKS_SECONDS

    def idle(self) -> Mapping[str, float]:
        """Give each judge's bound of a hang without pressure."""
        return dict.fromkeys("ABC", self.idle_seconds)

    def pressed(self) -> Mapping[str, float]:
        """Give each judge's bound of a hang under pressure."""
        without_guard = self.plain_seconds + self.cap_seconds + _TICKS_SECONDS
        return {"A": _PRESSED_SECONDS, "B": without_guard, "C": _PRESSED_SECONDS}

    def settings(self) -> Mapping[str, object]:
        """Give a sidecar's settings."""
        return {
            "health_period_seconds": self.period_seconds,
            "health_timeout_seconds": self.timeout_seconds,
            "health_failure_threshold": self.failure_threshold,
            "health_startup_seconds": self.startup_seconds,
            "health_credit_seconds": self.credit_seconds,
            "health_cap_seconds": self.cap_seconds,
            "tick_shortest_seconds": self.tick_seconds,
        }


HERE: Final = Pace(period_seconds=2.0, timeout_seconds=1.0, credit_seconds=24.0, cap_seconds=60.0)
"""Period and cap are a fifth of their defaults, the credit two fifths; the timeout stays, as latencies are real."""

EMULATED: Final = Pace(
    period_seconds=4.0,
    timeout_seconds=2.0,
    startup_seconds=300.0,
    credit_seconds=24.0,
    cap_seconds=60.0,
    tick_seconds=0.5,
)
"""An idle server answers in 0.1 s there, thirty times later than here."""
