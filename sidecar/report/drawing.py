"""Charts as SVG that stretches to the page, with all letters in HTML beside it: they keep their size on a phone.

Every chart of a page has the same width and the same time axis, so what lies below each other happened at once.
Lines do not scale with the drawing (`vector-effect`), and a dot is a line of no length with round ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from xml.etree.ElementTree import Element

from sidecar.report import scale
from sidecar.report.elements import tag
from sidecar.report.story import Chart, Curve, Point, Shape

WIDTH: Final = 1000.0
HEIGHT: Final = 100.0


@dataclass(frozen=True, slots=True)
class Clock:
    """The time axis of a page, in seconds from the end. Values in words are those at `quiet_s`."""

    start_s: float
    end_s: float
    quiet_s: float

    def share(self, at_s: float) -> float:
        """Where a time lies, from 0 (left) to 1."""
        return min(1.0, max(0.0, (at_s - self.start_s) / (self.end_s - self.start_s)))


def plot(chart: Chart, clock: Clock) -> Element:
    """Draw a chart with its axes."""
    stacks = _stacked([curve for curve in chart.curves if curve.shape is Shape.AREA])
    plain = [curve for curve in chart.curves if curve.shape is not Shape.AREA]
    top = scale.top_of(
        [value for curve in (*stacks, *plain) for _, value in curve.points if value is not None], chart.unit
    )
    pen = _Pen(clock, top)
    marks = scale.ticks(top, chart.unit)
    svg = tag(
        "svg",
        tag("title", chart.title),
        *(_rule("grid", 0, HEIGHT * (1 - one / top), WIDTH, HEIGHT * (1 - one / top)) for one in marks),
        *(
            _rule("grid", x, 0, x, HEIGHT)
            for x in (WIDTH * clock.share(one) for one in scale.time_ticks(clock.start_s))
        ),
        *reversed([_path(f"area {curve.style}", pen.area(curve.points, below)) for curve, below in _layers(stacks)]),
        *(_path(f"{curve.shape} {curve.style}", pen.draw(curve)) for curve in plain),
        _rule("death", WIDTH * clock.share(0), 0, WIDTH * clock.share(0), HEIGHT),
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        preserveAspectRatio="none",
        role="img",
        aria_label=_described(chart, clock),
    )
    labels = [
        tag("span", scale.mark(one, chart.unit), class_="y", style=f"top:{100 * (1 - one / top):.2f}%") for one in marks
    ]
    return tag("div", tag("div", svg, *labels, class_="plot"), times(clock))


def times(clock: Clock) -> Element:
    """Draw the time axis below a chart."""
    marks = scale.time_ticks(clock.start_s)
    return tag(
        "div",
        *(tag("span", scale.from_end(one), style=f"left:{100 * clock.share(one):.2f}%") for one in marks),
        class_="times",
        aria_hidden="true",
    )


def _described(chart: Chart, clock: Clock) -> str:
    said = (f"{curve.label} {scale.words(curve.last_known(clock.quiet_s), chart.unit)}" for curve in chart.curves)
    return f"{chart.title}. Just before the end: {', '.join(said)}."


def _stacked(curves: Sequence[Curve]) -> list[Curve]:
    """Add each curve to those before it. Where one is unknown, the stack above it is unknown."""
    stacked: list[Curve] = []
    for curve in curves:
        below = stacked[-1].points if stacked else tuple((at, 0.0) for at, _ in curve.points)
        points = tuple(
            (at, None if value is None or under is None else value + under)
            for (at, value), (_, under) in zip(curve.points, below, strict=True)
        )
        stacked.append(Curve(label=curve.label, style=curve.style, shape=curve.shape, points=points))
    return stacked


def _layers(stacks: Sequence[Curve]) -> Iterator[tuple[Curve, tuple[Point, ...]]]:
    """Give each stacked curve with the edge that it lies on."""
    below: tuple[Point, ...] = tuple((at, 0.0) for at, _ in stacks[0].points) if stacks else ()
    for curve in stacks:
        yield curve, below
        below = curve.points


@dataclass(frozen=True, slots=True)
class _Pen:
    clock: Clock
    top: float

    def at(self, point: tuple[float, float]) -> str:
        at, value = point
        return f"{WIDTH * self.clock.share(at):.1f} {HEIGHT * (1 - value / self.top):.2f}"

    def draw(self, curve: Curve) -> str:
        if curve.shape in (Shape.DOTS, Shape.FAILED):
            return "".join(f"M{self.at(point)}h0" for point in _known(curve.points))
        runs = (_steps(run) if curve.shape is Shape.LIMIT else run for run in _runs(curve.points))
        return "".join(f"M{'L'.join(self.at(point) for point in run)}h0" for run in runs)

    def area(self, upper: Sequence[Point], lower: Sequence[Point]) -> str:
        under = dict(_known(lower))
        parts = []
        for run in _runs(upper):
            back = [(at, under[at]) for at, _ in reversed(run)]
            parts.append(f"M{'L'.join(self.at(point) for point in (*run, *back))}Z")
        return "".join(parts)


def _known(points: Sequence[Point]) -> list[tuple[float, float]]:
    return [(at, value) for at, value in points if value is not None]


def _runs(points: Sequence[Point]) -> Iterator[list[tuple[float, float]]]:
    """Give stretches without a gap."""
    for known, run in groupby(points, lambda point: point[1] is not None):
        if known:
            yield _known(list(run))


def _steps(run: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A limit holds until it is changed: give only the corners."""
    corners = [run[0]]
    for at, value in run[1:]:
        if value != corners[-1][1]:
            corners += [(at, corners[-1][1]), (at, value)]
    return [*corners, (run[-1][0], corners[-1][1])]


def _path(style: str, d: str) -> Element:
    return tag("path", class_=style, d=d)


def _rule(style: str, x1: float, y1: float, x2: float, y2: float) -> Element:
    return _path(style, f"M{x1:.1f} {y1:.2f}L{x2:.1f} {y2:.2f}")
