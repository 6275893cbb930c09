"""The timeline of the page: events, lanes and charts, all on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from sidecar.report import scale
from sidecar.report.drawing import Clock, plot, times
from sidecar.report.elements import bullets, section, tag
from sidecar.report.story import Chart, Happening, Lane, Shape, Span, Story
from sidecar.report.tables import of_chart

_MARK_APART: Final = 0.09
"""Marks of events nearer than this share of the width become one: they would cover each other on a phone."""


def timeline(story: Story, clock: Clock) -> Element:
    """Make the section."""
    return section(
        "Timeline",
        f"The last {scale.from_end(story.start_s)[1:]} before the end, on one clock; the red line is the end.",
        _marks(story.happenings, clock) if story.happenings else None,
        *(_lane(lane, clock) for lane in story.lanes),
        times(clock) if story.lanes or story.happenings else None,
        tag("div", *(_figure(chart, clock) for chart in story.charts), class_="charts") if story.charts else None,
        bullets(story.unseen, "unseen") if story.unseen else None,
    )


def _marks(happenings: Sequence[Happening], clock: Clock) -> Element:
    """Put the numbers of the events on the clock; neighbours share a mark."""
    groups: list[list[Happening]] = []
    for one in happenings:
        if one.at_s > clock.end_s:
            continue
        near = groups and clock.share(one.at_s) - clock.share(groups[-1][0].at_s) < _MARK_APART
        if near:
            groups[-1].append(one)
        else:
            groups.append([one])
    return tag(
        "div", tag("b", "Events"), tag("div", *(_mark(group, clock) for group in groups), class_="marks"), class_="lane"
    )


def _mark(group: Sequence[Happening], clock: Clock) -> Element:
    first, last = group[0], group[-1]
    weight = min((one.weight for one in group), key=("bad", "warning", "plain").index)
    return tag(
        "a",
        f"{first.number}" if first is last else f"{first.number}\N{EN DASH}{last.number}",
        href=f"#event-{first.number}",
        class_=weight,
        title="; ".join(f"{scale.from_end(one.at_s)} {one.kind}" for one in group),
        style=f"left:{100 * clock.share(first.at_s):.2f}%",
    )


def _lane(lane: Lane, clock: Clock) -> Element:
    bars = tag("div", *(_span(span, clock) for span in lane.spans), class_="bars")
    return tag("div", tag("b", lane.title), bars, class_="lane")


def _span(span: Span, clock: Clock) -> Element:
    left, right = clock.share(span.start_s), clock.share(span.end_s)
    return tag(
        "span",
        tag("em", span.label),
        class_=span.style,
        title=f"{scale.from_end(span.start_s)} to {scale.from_end(span.end_s)}: {span.text}",
        style=f"left:{100 * left:.2f}%;width:{100 * max(right - left, 0.002):.2f}%",
    )


def _figure(chart: Chart, clock: Clock) -> Element:
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("b", chart.title),
            tag("code", chart.where) if chart.where else None,
            *(tag("span", f" {note}", class_="unseen") for note in chart.notes),
        ),
        plot(chart, clock),
        _legend(chart, clock),
        tag("details", tag("summary", "as a table"), of_chart(chart)),
    )


def _legend(chart: Chart, clock: Clock) -> Element:
    dots = (Shape.DOTS, Shape.FAILED)
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag("i", class_=f"{curve.shape} {curve.style}"),
                curve.label,
                None
                if curve.shape in dots
                else tag("b", f" {scale.words(curve.last_known(clock.quiet_s), chart.unit)}"),
            )
            for curve in reversed(chart.curves)
        ),
        class_="legend",
        title="values just before the end",
    )
