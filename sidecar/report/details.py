"""What the page says around its timeline: evidence, steps, history, events, levels, surroundings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element

from sidecar.report import scale
from sidecar.report.elements import bullets, date, section, table, tag
from sidecar.report.story import Fact, Happening, Statement, Story


def reasons(story: Story) -> Element:
    """Say why, and what to do next."""
    verdict = story.verdict
    return tag(
        "div",
        section(
            "Why we think so",
            None,
            _evidence("For", "for", verdict.supporting),
            _evidence("Against", "against", verdict.against),
            tag("h3", "Missing") if verdict.missing else None,
            bullets(verdict.missing, "missing") if verdict.missing else None,
        ),
        section("What to do next", None, tag("ol", *(tag("li", step) for step in verdict.steps), class_="steps")),
        class_="two",
    )


def _evidence(title: str, style: str, said: Sequence[Statement]) -> Element | None:
    if not said:
        return None
    items = (tag("li", one.text, tag("cite", one.source)) for one in said)
    return tag("div", tag("h3", title), tag("ul", *items, class_=style))


def rest(story: Story) -> Element:
    """Say how the verdict came about, what happened, and where."""
    history = [(date(one.at), one.verdict, one.summary, one.because) for one in story.verdict.history]
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
        section("How the verdict came about", None, table(("at", "verdict", "summary", "because"), _cells(history)))
        if history
        else None,
        section("Events", None, _events(story.happenings)) if story.happenings else None,
        section(
            "Every level of its cgroup",
            "Own group first. Memory just before the end; kills as counted across the end.",
            table(("group", "in use", "limit (memory.max)", "throttling (memory.high)", "OOM kills"), levels),
        )
        if story.levels
        else None,
        tag(
            "div",
            section("All that is known of the end", None, _pairs(story.known)) if story.known else None,
            section("Where it happened", None, _pairs(story.surroundings)),
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
    return table((), _cells((one.label, one.value) for one in facts))
