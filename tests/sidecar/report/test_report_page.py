"""The page: sound, self-contained, safe against what a record may hold, and complete without its pictures."""

from __future__ import annotations

import re

import pytest

from sidecar.report.page import page
from sidecar.report.story import Story
from tests.sidecar.report.pages import Page
from tests.sidecar.report.reporting import MIB, document, event, level, row, story

ALIVE = [row(at / 2, level(current=(350 + at) * MIB)) for at in range(-60, 0)]
HOSTILE = "<script>alert(1)</script>\"'><img src=http://evil.example/x onerror=alert(1)> & ]]> --> </style>"


def shown(told: Story) -> Page:
    """Render a story and read it back."""
    return Page.of(page(told, "made by a test"))


def test_it_needs_nothing_from_elsewhere() -> None:
    """No script, no frame, no picture, no link out, and a policy that forbids all of them."""
    read = shown(story(ALIVE, event(-3, "warning")))
    assert {name for name, _ in read.elements} & {"script", "iframe", "img", "object", "form", "base"} == set()
    assert [one["href"] for one in read.all("link")] == ["data:,"]
    assert all((one["href"] or "").startswith("#event-") for one in read.all("a"))
    (policy,) = [one["content"] for one in read.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert (policy or "").startswith("default-src 'none'")
    assert "url(" not in page(story(ALIVE), "")


def test_the_first_screen_answers() -> None:
    """What it was, whose limit, how large, what to change and how sure come before everything else."""
    read = shown(story(ALIVE))
    places = [
        read.text.index(text)
        for text in (
            "A memory limit killed it",
            "the model's own group: 400.0\N{NO-BREAK SPACE}MiB",
            "raise the memory limit of the model's container above 400.0\N{NO-BREAK SPACE}MiB",
            "high confidence",
            "Timeline",
            "Why we think so",
        )
    ]
    assert places == sorted(places)


def test_evidence_names_its_source() -> None:
    """For, against and missing are all there, each with where it was read."""
    text = shown(story(ALIVE)).text
    assert "oom_kill rose from 0 to 1memory.events of /pod/llm" in text
    assert "the node had room/proc/meminfo" in text
    assert "kernel log: /dev/kmsg: denied (EPERM)" in text


def test_what_a_record_holds_is_text_and_nothing_else() -> None:
    """Names, paths, events and evidence that look like markup are shown as they are."""
    hostile = document(
        model=HOSTILE,
        summary=HOSTILE,
        level=HOSTILE,
        evidence=[{"for": True, "text": HOSTILE, "source": HOSTILE}],
        missing=[HOSTILE],
        next=[HOSTILE],
        id="x" + HOSTILE,
    )
    work = {"kind": HOSTILE, "label": HOSTILE, "file": HOSTILE, "bytes_done": 1, "bytes_expected": 2}
    ticks = [row(at, level(HOSTILE), state=HOSTILE, operations=[work]) for at in range(-9, 0)]
    told = story(ticks, event(-1, HOSTILE, HOSTILE, model=HOSTILE), **hostile)
    read = shown(told)
    assert {name for name, _ in read.elements} & {"script", "img"} == set()
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]
    assert read.text.count("<script>alert(1)</script>") > 10


def test_an_unknown_stretch_is_a_gap_in_every_curve() -> None:
    """The line is broken where nothing was read; it never falls to zero."""
    ticks = [
        row(at, *([] if -20 <= at < -10 else [level()]), levels=[] if -20 <= at < -10 else [level()])
        for at in range(-30, 0)
    ]
    read = shown(story(ticks))
    (anonymous,) = read.paths("anon")
    assert anonymous.count("M") == 2
    (limit,) = read.paths("max")
    assert limit.count("M") == 2


def test_a_limit_that_was_changed_is_a_step() -> None:
    """Between two readings a limit held; no slope is drawn."""
    ticks = [row(at, level(max=(400 if at < -5 else 300) * MIB)) for at in range(-10, 0)]
    (limit,) = shown(story(ticks)).paths("max")
    heights = re.findall(r"[ML][\d.]+ ([\d.]+)", limit)
    assert len(heights) == 4
    assert heights[0] == heights[1]
    assert heights[2] == heights[3]


def test_every_figure_has_words_and_a_table() -> None:
    """A reader who sees no picture gets a description, the legend with values, and the numbers."""
    cards = [{"index": 0, "used": 3 * MIB, "free": MIB}]
    probe = {"started_monotonic_s": 990.0, "latency_seconds": 0.02, "outcome": "ok"}
    read = shown(story([row(at, gpus=cards, probe=probe) for at in range(-20, 0)]))
    figures = len(read.all("figure"))
    assert figures >= 5
    assert len(read.all("summary")) == len(read.all("caption")) == figures
    drawings = read.all("svg")
    assert len(drawings) == figures
    assert all(one["role"] == "img" and one["aria-label"] for one in drawings)
    assert "Memory of GPU 0. Just before the end: in use 3.0 MiB, the card has 4.0 MiB." in [
        one["aria-label"] for one in drawings
    ]


def test_marks_of_events_do_not_cover_each_other() -> None:
    """Events that lie close share one mark, which is as loud as the loudest of them and leads to the first."""
    events = [event(-30, "model_started"), event(-10.2, "state_changed"), event(-10, "livez_failing"), event(0, "x")]
    read = shown(story(ALIVE, *events))
    marks = [(one["href"], one["class"]) for one in read.all("a")]
    assert marks == [("#event-1", "plain"), ("#event-2", "bad"), ("#event-4", "plain")]
    assert {f"event-{number}" for number in range(1, 5)} <= {one.get("id") for one in read.all("li")}


def test_an_end_without_samples_is_a_page_too() -> None:
    """Verdict and evidence stand without a single curve; what is missing is said."""
    read = shown(story([], missing=[], next=[], evidence=[], fields={}))
    assert read.all("svg") == []
    assert "The record holds no sample around this end" in read.text
    assert "nothing that is known" in read.text


@pytest.mark.parametrize("seconds", [5.0, 90.0, 3600.0, 7 * 86400.0])
def test_any_length_of_the_timeline(seconds: float) -> None:
    """From seconds to a week the time axis has a few round marks, the end among them."""
    ticks = [row(-seconds * place / 50) for place in range(1, 50)]
    read = shown(story(ticks, seconds=seconds))
    marks = [one for one in read.all("span") if one.get("style") and set(one) == {"style"}]
    assert 2 <= len(marks) / len([one for one in read.all("div") if one.get("class") == "times"]) <= 8
    assert "end" in read.text
