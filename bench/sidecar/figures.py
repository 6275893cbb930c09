"""Measured figures: each with its unit, the goal it must hold, and what was measured beside it in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

Number = int | float
Json = dict[str, object]

_NOTHING: Mapping[str, Number | str | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound, both ends included."""

    at_most: Number | None = None
    at_least: Number | None = None

    def holds(self, value: Number | None) -> bool:
        """Tell whether a value keeps the bound; what could not be measured does not."""
        if value is None:
            return False
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)

    def __str__(self) -> str:
        """Say it as in a table."""
        bounds = [f"<= {short(self.at_most)}"] if self.at_most is not None else []
        if self.at_least is not None:
            bounds.append(f">= {short(self.at_least)}")
        return ", ".join(bounds)

    def document(self) -> Json:
        """Give it as JSON."""
        bounds = {"at_most": self.at_most, "at_least": self.at_least}
        return {name: bound for name, bound in bounds.items() if bound is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number. `value` None: it could not be measured. `beside`: peers and details of the same run."""

    name: str
    value: Number | None
    unit: str
    goal: Goal | None = None
    beside: Mapping[str, Number | str | None] = field(default_factory=lambda: _NOTHING)

    @property
    def held(self) -> bool | None:
        """Whether the goal is held; None without a goal."""
        return None if self.goal is None else self.goal.holds(self.value)

    def document(self) -> Json:
        """Give it as JSON."""
        said: Json = {"value": self.value, "unit": self.unit}
        if self.goal is not None:
            said |= {"goal": self.goal.document(), "held": self.held}
        return said | ({"beside": dict(self.beside)} if self.beside else {})


@dataclass(frozen=True, slots=True)
class Part:
    """Figures that were measured together."""

    name: str
    title: str
    figures: tuple[Figure, ...]

    @property
    def missed(self) -> tuple[str, ...]:
        """The figures whose goals are not held."""
        return tuple(figure.name for figure in self.figures if figure.held is False)

    def document(self) -> Json:
        """Give it as JSON, figures by name."""
        return {"title": self.title, "figures": {figure.name: figure.document() for figure in self.figures}}

    def table(self) -> Iterable[str]:
        """Give the lines of its table."""
        yield self.title
        for figure in self.figures:
            mark = {True: "held", False: "NOT HELD", None: ""}[figure.held]
            value = f"{short(figure.value)} {figure.unit}"
            goal = "" if figure.goal is None else str(figure.goal)
            yield f"  {figure.name:<36}{value:>18}  {goal:<12}{mark}".rstrip()
            for name, peer in figure.beside.items():
                yield f"      {name:<32}{short(peer):>10}"


def short(value: Number | str | None) -> str:
    """Print a number with three digits that count, whole numbers whole."""
    if value is None:
        return "-"
    if isinstance(value, str | int):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Give a percentile; None with fewer than two values."""
    few = 2
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) >= few else None


def median(values: Sequence[float]) -> float | None:
    """Give the median; None of nothing."""
    return statistics.median(values) if values else None
