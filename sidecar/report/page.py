"""The report as one HTML file: no script, nothing from elsewhere, for phone, paper and screen reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final
from xml.etree.ElementTree import Element

from sidecar.report import scale
from sidecar.report.drawing import Clock, plot, times
from sidecar.report.elements import Child, render, tag
from sidecar.report.story import Chart, Fact, Happening, Lane, Shape, Span, Statement, Story
from sidecar.report.tables import of_chart

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_MARK_APART: Final = 0.09
"""Marks of events nearer than this share of the width become one: they would cover each other on a phone."""


def page(story: Story, colophon: str) -> str:
    """Write the whole page. `colophon`: what made it, and from what."""
    clock = Clock(story.start_s, story.end_s, story.quiet_s)
    body = tag(
        "body",
        tag("header", tag("b", "oomguard"), " report", tag("span", f"incident {story.id}"), class_="top"),
        tag("main", _hero(story), _facts(story.facts), _timeline(story, clock), _reasons(story), _rest(story)),
        tag("footer", colophon),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{story.model}: {story.verdict.headline}, {story.at}"),
        tag("style", files("sidecar.report").joinpath("style.css").read_text("utf-8")),
    )
    return f"<!doctype html>\n{render(tag('html', head, body, lang='en'))}\n"


_SIZE: Final = re.compile(r"(?<=\d) (?=(?:[KMGTPE]i)?B\b|s\b|ms\b|%)")


def _whole(text: str) -> str:
    """Keep number and unit on one line."""
    return _SIZE.sub("\N{NO-BREAK SPACE}", text)


def _hero(story: Story) -> Element:
    verdict = story.verdict
    answers = (
        ("Whose limit", verdict.whose, tag("code", verdict.group) if verdict.group else None),
        ("What to change", verdict.steps[0] if verdict.steps else "nothing that is known", None),
        ("How sure", verdict.confidence, tag("span", verdict.confidence_words, class_="soft")),
    )
    return tag(
        "section",
        tag("p", "Model ", tag("b", story.model), f" ended {_date(story.at)}", class_="kicker"),
        tag("h1", verdict.headline, " ", tag("code", verdict.end_class)),
        tag("p", _whole(verdict.summary), class_="summary"),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", _whole(text), more)) for name, text, more in answers)),
        class_=f"hero {verdict.tone}",
    )


def _date(iso: str) -> str:
    return iso.replace("T", " ").replace("Z", " UTC")


def _facts(facts: Sequence[Fact]) -> Element | None:
    if not facts:
        return None
    tiles = (
        tag(
            "div",
            tag("dt", fact.label),
            tag("dd", tag("b", _whole(fact.value)), tag("span", _whole(fact.note), class_="soft")),
        )
        for fact in facts
    )
    return tag("dl", *tiles, class_="facts")


def _timeline(story: Story, clock: Clock) -> Element:
    return _section(
        "Timeline",
        f"The last {scale.from_end(story.start_s)[1:]} before the end, on one clock; the red line is the end.",
        _marks(story.happenings, clock) if story.happenings else None,
        *(_lane(lane, clock) for lane in story.lanes),
        times(clock) if story.lanes or story.happenings else None,
        tag("div", *(_figure(chart, clock) for chart in story.charts), class_="charts") if story.charts else None,
        _list(story.unseen, "unseen") if story.unseen else None,
    )


def _section(title: str, intro: str | None, *children: Child) -> Element:
    return tag("section", tag("h2", title), tag("p", intro, class_="soft") if intro else None, *children)


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


def _reasons(story: Story) -> Element:
    verdict = story.verdict
    return tag(
        "div",
        _section(
            "Why we think so",
            None,
            _evidence("For", "for", verdict.supporting),
            _evidence("Against", "against", verdict.against),
            tag("h3", "Missing") if verdict.missing else None,
            _list(verdict.missing, "missing") if verdict.missing else None,
        ),
        _section("What to do next", None, tag("ol", *(tag("li", step) for step in verdict.steps), class_="steps")),
        class_="two",
    )


def _evidence(title: str, style: str, said: Sequence[Statement]) -> Element | None:
    if not said:
        return None
    items = (tag("li", one.text, tag("cite", one.source)) for one in said)
    return tag("div", tag("h3", title), tag("ul", *items, class_=style))


def _rest(story: Story) -> Element:
    history = [(_date(one.at), one.verdict, one.summary, one.because) for one in story.verdict.history]
    levels = (
        tag(
            "tr",
            tag("td", tag("code", one.name), tag("b", " this limit killed it") if one.culprit else None),
            *(tag("td", text) for text in (one.current, one.max, one.high, one.kills)),
            class_="bad" if one.culprit else "plain",
        )
        for one in story.levels
    )
    return tag(
        "div",
        _section("How the verdict came about", None, _table(("at", "verdict", "summary", "because"), _cells(history)))
        if history
        else None,
        _section("Events", None, _events(story.happenings)) if story.happenings else None,
        _section(
            "Every level of its cgroup",
            "Own group first. Memory just before the end; kills as counted across the end.",
            _table(("group", "in use", "limit (memory.max)", "throttling (memory.high)", "OOM kills"), levels),
        )
        if story.levels
        else None,
        tag(
            "div",
            _section("All that is known of the end", None, _pairs(story.known)) if story.known else None,
            _section("Where it happened", None, _pairs(story.surroundings)),
            class_="two",
        ),
    )


def _events(happenings: Sequence[Happening]) -> Element:
    items = (
        tag(
            "li",
            tag("span", str(one.number)),
            tag("span", scale.from_end(round(one.at_s, 2))),
            tag("b", one.kind),
            tag("span", one.text),
            id=f"event-{one.number}",
            class_=one.weight,
        )
        for one in happenings
    )
    return tag("ol", *items, class_="events")


def _cells(rows: Iterable[Sequence[str]]) -> Iterable[Element]:
    return (tag("tr", *(tag("td", text) for text in row)) for row in rows)


def _pairs(facts: Sequence[Fact]) -> Element:
    return _table((), _cells((one.label, one.value) for one in facts))


def _table(head: Sequence[str], rows: Iterable[Element]) -> Element:
    top = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head))) if head else None
    return tag("div", tag("table", top, tag("tbody", *rows), class_="wide" if head else "pairs"), class_="scroll")


def _list(texts: Sequence[str], style: str) -> Element:
    return tag("ul", *(tag("li", text) for text in texts), class_=style)
