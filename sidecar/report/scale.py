"""Round numbers for axes, and numbers in words."""

from __future__ import annotations

import math
from typing import Final

from sidecar.report.story import Unit
from sidecar.units import human_bytes, human_seconds, human_share

_LEAST: Final = {Unit.BYTES: 1024.0, Unit.SHARE: 1.0, Unit.PER_SECOND: 10.0, Unit.SECONDS: 0.05}
"""Below these an axis would make noise look like news."""
_STEPS: Final = (1.0, 2.0, 5.0, 10.0)
_TIME_STEPS: Final = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 10800.0, 21600.0, 43200.0, 86400.0),
)


def ticks(top: float, unit: Unit, most: int = 4) -> tuple[float, ...]:
    """Give round values from above 0 up to `top`, at most about `most`."""
    if not 0 < top < math.inf:
        return ()
    base = 1024.0 ** max(0, math.floor(math.log(top, 1024))) if unit is Unit.BYTES else 1.0
    step = base * _round_step(top / base / most)
    return tuple(step * place for place in range(1, math.floor(top / step + 1e-9) + 1))


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return power * next((step for step in _STEPS if step * power >= least * 0.999), 10.0)


def time_ticks(start_s: float, most: int = 6) -> tuple[float, ...]:
    """Give round times from the end back to `start_s`, which is negative: 0, -10, -20, ..."""
    least = -start_s / most
    step = next((step for step in _TIME_STEPS if step >= least), _TIME_STEPS[-1] * math.ceil(least / _TIME_STEPS[-1]))
    return tuple(-step * place for place in range(math.floor(-start_s / step + 1e-9) + 1))


def top_of(values: list[float], unit: Unit) -> float:
    """Give where an axis ends: a little above the highest value."""
    highest = max(values, default=0.0)
    if unit is Unit.SHARE:
        return _LEAST[unit]
    return max(highest * 1.08, _LEAST[unit])


def words(value: float | None, unit: Unit) -> str:
    """Say a value of a chart; None is unknown."""
    if value is None:
        return "unknown"
    if unit is Unit.BYTES:
        return human_bytes(value)
    if unit is Unit.SECONDS:
        return f"{value * 1000:.0f} ms" if value < 1 else human_seconds(value)
    if unit is Unit.SHARE:
        return human_share(value)
    return f"{value:,.0f}/s"


def mark(value: float, unit: Unit) -> str:
    """Say a value beside an axis: short."""
    if unit is Unit.SHARE:
        return f"{value * 100:.0f} %"
    if unit is Unit.BYTES:
        return human_bytes(value).replace(".0 ", " ")
    if unit is Unit.SECONDS:
        return f"{value * 1000:g} ms" if value < 1 else f"{value:g} s"
    return f"{value:,g}/s"


def from_end(at_s: float) -> str:
    """Say a time from the end: "-9.5 s", "end", "+0.03 s", "-2 min", "-3 h"."""
    if at_s == 0:
        return "end"
    size, sign = abs(at_s), "\N{MINUS SIGN}" if at_s < 0 else "+"
    for seconds, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if size >= 2 * seconds:
            return f"{sign}{size / seconds:.3g} {name}"
    return f"{sign}{size:.0f} s" if size % 1 == 0 else f"{sign}{human_seconds(size)}"
