"""One judge's answer to one scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`failed_after_s` counts from the fault; negative: before it. `states` and what follows are the sidecars' own."""

    scenario: str
    judge: str
    healthy: bool
    failed: bool
    failed_after_s: float | None
    bound_s: float | None
    states: str = ""
    slowest_answer_s: float | None = None
    said: str = ""

    @property
    def right(self) -> bool:
        """Whether a well server was left alone, or a hang failed in time and not before it happened."""
        if self.healthy or not self.failed:
            return self.healthy and not self.failed
        assert self.failed_after_s is not None
        assert self.bound_s is not None
        return 0 <= self.failed_after_s <= self.bound_s

    @property
    def wrong_of_ours(self) -> bool:
        """Whether a sidecar was wrong. The plain prober is only there to be compared with."""
        return self.judge != "A" and not self.right

    def document(self) -> dict[str, Any]:
        """Give it as JSON."""
        return {**asdict(self), "right": self.right}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Take it from JSON."""
        return cls(**{name: value for name, value in document.items() if name != "right"})

    def __str__(self) -> str:
        """Show it as a row of the table."""
        after = "-" if self.failed_after_s is None else f"{self.failed_after_s:.1f} s"
        bound = "-" if self.bound_s is None else f"{self.bound_s:.0f} s"
        mark = "  WRONG" if self.wrong_of_ours else "" if self.right else "  wrong"
        well = "yes" if self.healthy else "hang"
        return f"{self.scenario:60} {well:5} {self.judge:5} {after:>12} {bound:>6}{mark}  {self.states}"


HEAD = f"{'scenario':60} {'well':5} {'judge':5} {'failed after':>12} {'bound':>6}"
