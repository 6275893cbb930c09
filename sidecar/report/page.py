"""The report as one HTML file: no script, nothing from elsewhere, for phone, paper and screen reader."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Final
from xml.etree.ElementTree import Element

from sidecar.report.details import reasons, rest
from sidecar.report.drawing import Clock
from sidecar.report.elements import date, render, tag
from sidecar.report.story import Fact, Story
from sidecar.report.timeline import timeline

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(story: Story, colophon: str) -> str:
    """Write the whole page. `colophon`: what made it, and from what."""
    clock = Clock(story.start_s, story.end_s, story.quiet_s)
    body = tag(
        "body",
        tag("header", tag("b", "oomguard"), " report", tag("span", f"incident {story.id}"), class_="top"),
        tag("main", _hero(story), _facts(story.facts), timeline(story, clock), reasons(story), rest(story)),
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
        tag("p", "Model ", tag("b", story.model), f" ended {date(story.at)}", class_="kicker"),
        tag("h1", verdict.headline, " ", tag("code", verdict.end_class)),
        tag("p", _whole(verdict.summary), class_="summary"),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", _whole(text), more)) for name, text, more in answers)),
        class_=f"hero {verdict.tone}",
    )


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
