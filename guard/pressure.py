"""How hard memory is pressed, from everybody who tells of it. Pure: time is a parameter.

A source (the sidecar's link, a systemd style watch) says a level and for how long its word holds. Who falls silent is
forgotten: a sidecar that died at "critical" must not keep a server shedding load for ever. The worst word counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NONE: Final = "none"
WARNING: Final = "warning"
CRITICAL: Final = "critical"
LEVELS: Final = (NONE, WARNING, CRITICAL)
"""From calm to worst, as `Pressure.level` says them on the link."""


def rank(level: str) -> int:
    """Place of a level; one that this release does not know says nothing, as none does."""
    return LEVELS.index(level) if level in LEVELS else 0


@dataclass(frozen=True, slots=True)
class Word:
    """What one source said last. `until_s` is on CLOCK_MONOTONIC."""

    level: str
    reason: str
    until_s: float


CALM: Final = Word(NONE, "nobody tells of pressure", float("inf"))


class Gauge:
    """The last word of every source. Not locked: its owner is."""

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words: dict[str, Word] = {}

    def hear(self, source: str, word: Word) -> None:
        """Take a source's word; it replaces its last one."""
        if rank(word.level):
            self._words[source] = word
        else:
            self._words.pop(source, None)

    def worst(self, now_s: float) -> Word:
        """Give the worst word that still holds; of equal ones the one that holds longest."""
        holding = [word for word in self._words.values() if word.until_s > now_s]
        return max(holding, key=lambda word: (rank(word.level), word.until_s), default=CALM)
