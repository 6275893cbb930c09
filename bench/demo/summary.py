"""What the demo found, as values; as `summary.json`; and which promises did not hold. `None` is not known, never 0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

VERDICT_WITHIN_SECONDS = 1.0
WARNING_LEAD_SECONDS = 2.0
HANG_WITHIN_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """Single probes that failed, of `probes` that each of the two was asked while the kernel reclaimed."""

    plain_failures: int
    sidecar_failures: int
    probes: int
    said_reclaiming: int  # not in the file: how often the sidecar's answer named the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Seconds from the deadlock until the model counted as failed; the plain probe's third failure in a row."""

    plain_failed_after_s: float | None
    sidecar_failed_after_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Seconds from the first warning to the kernel's kill."""

    warning_lead_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """What the black box says was being loaded."""

    file: str | None
    tensor: str | None
    bytes_done: int | None
    bytes_expected: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """The incident. `verdict_after_s` runs from the death of the process until `/incidents` showed it."""

    end_class: str | None
    level: str | None
    in_flight: InFlight
    verdict_after_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All four scenes."""

    reclaim: Reclaim
    hang: Hang
    growth: Growth
    kill: Kill
    expected_level: str  # the group whose limit the kill was for

    def write(self, path: Path) -> None:
        """Write `summary.json`."""
        document = asdict(self)
        del document["expected_level"], document["reclaim"]["said_reclaiming"]
        document["kill"] = {"class": document["kill"].pop("end_class"), **document["kill"]}
        path.write_text(json.dumps(document, indent=2) + "\n")

    def broken(self) -> Iterator[str]:
        """Yield the promises that did not hold, as sentences."""
        yield from _broken_reclaim(self.reclaim)
        if self.hang.plain_failed_after_s is None:
            yield "hang: the plain probe did not notice the deadlock"
        if (after := self.hang.sidecar_failed_after_s) is None or after > HANG_WITHIN_SECONDS:
            yield f"hang: the sidecar did not fail the deadlocked server within {HANG_WITHIN_SECONDS:.0f} s"
        if (lead := self.growth.warning_lead_s) is None or lead < WARNING_LEAD_SECONDS:
            yield f"growth: no warning at least {WARNING_LEAD_SECONDS:.0f} s before the end (lead: {lead})"
        yield from _broken_kill(self.kill, self.expected_level)


def _broken_reclaim(reclaim: Reclaim) -> Iterator[str]:
    if not reclaim.plain_failures:
        yield "reclaim: the plain probe never failed, so there was nothing to show"
    if reclaim.sidecar_failures:
        yield f"reclaim: the sidecar failed a healthy server {reclaim.sidecar_failures} times"
    if not reclaim.said_reclaiming:
        yield "reclaim: the sidecar never said that the model is being reclaimed"


def _broken_kill(kill: Kill, expected_level: str) -> Iterator[str]:
    if kill.end_class != "cgroup_oom":
        yield f"kill: the verdict was {kill.end_class}, not cgroup_oom"
    if kill.level != expected_level:
        yield f"kill: the verdict names the limit of {kill.level}, it was that of {expected_level}"
    if unknown := [name for name, value in asdict(kill.in_flight).items() if value is None]:
        yield f"kill: not known about what was being loaded: {', '.join(unknown)}"
    if kill.verdict_after_s is None or kill.verdict_after_s > VERDICT_WITHIN_SECONDS:
        yield f"kill: no verdict within {VERDICT_WITHIN_SECONDS:.0f} s (after: {kill.verdict_after_s})"
