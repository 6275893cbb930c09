"""The numbers behind a chart, for who cannot see it or wants them exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from sidecar.report import scale
from sidecar.report.elements import tag
from sidecar.report.story import Chart, Shape

_ROWS: Final = 40


def of_chart(chart: Chart) -> Element:
    """Give at most `_ROWS` rows, evenly taken; the last ones before the end always."""
    dots = any(curve.shape in (Shape.DOTS, Shape.FAILED) for curve in chart.curves)
    rows = _dots(chart) if dots else _lines(chart)
    names = ("answer", "outcome") if dots else tuple(curve.label for curve in chart.curves)
    head = tag("tr", tag("th", "from the end", scope="col"), *(tag("th", name, scope="col") for name in names))
    body = (tag("tr", tag("th", row[0], scope="row"), *(tag("td", text) for text in row[1:])) for row in rows)
    table = tag("table", tag("caption", chart.title), tag("thead", head), tag("tbody", *body))
    return tag("div", table, class_="scroll")


def _lines(chart: Chart) -> list[tuple[str, ...]]:
    times = [at for at, _ in chart.curves[0].points]
    columns = [dict(curve.points) for curve in chart.curves]
    return [
        (scale.from_end(round(at, 2)), *(scale.words(column.get(at), chart.unit) for column in columns))
        for at in _some(times)
    ]


def _dots(chart: Chart) -> list[tuple[str, ...]]:
    every = sorted(
        (at, value, "ok" if curve.shape is Shape.DOTS else "failed")
        for curve in chart.curves
        for at, value in curve.points
        if value is not None
    )
    return [
        (scale.from_end(round(at, 2)), scale.words(value, chart.unit), outcome) for at, value, outcome in every[-_ROWS:]
    ]


def _some(times: Sequence[float]) -> list[float]:
    if len(times) <= _ROWS:
        return list(times)
    near_end = [at for at in times if at < 0][-5:] + [at for at in times if at >= 0]
    step = len(times) / _ROWS
    evenly = (times[int(step * place)] for place in range(_ROWS))
    return sorted({*evenly, *near_end})
