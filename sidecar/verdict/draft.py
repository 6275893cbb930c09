"""What a rule gives: a class and how sure it is by the evidence for it alone. Contradictions are counted afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.verdict.owner import Owner
from sidecar.verdict.values import Confidence, EndClass, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Invariant: `confidence` never rests on a statement against; `sureness` lowers it for those."""

    end_class: EndClass
    confidence: Confidence
    summary: str
    statements: tuple[Statement, ...] = ()
    owner: Owner | None = None


_LOWER = {
    Confidence.HIGH: Confidence.MEDIUM,
    Confidence.MEDIUM: Confidence.LOW,
    Confidence.LOW: Confidence.LOW,
}


def sureness(confidence: Confidence, statements: tuple[Statement, ...]) -> Confidence:
    """Lower the confidence by one step for each of the first two statements against."""
    for _ in [one for one in statements if not one.supports][:2]:
        confidence = _LOWER[confidence]
    return confidence
