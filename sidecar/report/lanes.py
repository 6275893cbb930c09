"""What went on along the timeline: the judged state, loads in flight, events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby, repeat
from typing import Any, Final

from sidecar.report.frames import Frame
from sidecar.report.rows import Operation
from sidecar.report.story import Happening, Lane, Span, Weight
from sidecar.units import human_bytes, human_share

_BAD_STATES: Final = ("dead", "hung", "livelock")
_BAD_KINDS: Final = ("model_ended", "child_ended", "end_found", "livez_failing", "gpu_xid", "gpu_lost")
_WARNING_KINDS: Final = ("limit_changed", "degraded", "probe_failed", "sidecar_stalled", "verdict_refined")


def states(frames: Sequence[Frame]) -> Lane | None:
    """Show what the judge said, as it changed."""
    found = [frame.row.state for frame in frames]
    spans = [
        Span(
            label=state,
            style=f"state-{state}",
            start_s=frames[first].at_s,
            end_s=_until(frames, last),
            text=f"the model was {state}",
        )
        for first, last in _stretches(found)
        if (state := found[first]) is not None
    ]
    return Lane(title="State", spans=tuple(spans)) if spans else None


def operations(frames: Sequence[Frame]) -> list[Lane]:
    """Show loads and other marked work, with what was done of them when they were last seen."""
    spans = []
    for key in dict.fromkeys(one.key for frame in frames for one in frame.row.operations):
        found = [frame.row.operation(key) for frame in frames]
        for first, last in _stretches([one is not None for one in found]):
            work = found[last]
            assert work is not None
            start, end = frames[first].at_s, _until(frames, last)
            style = f"work-{work.kind}"
            spans.append(Span(label=work.name, style=style, start_s=start, end_s=end, text=_in_words(work)))
    titles = chain(("Work in flight",), repeat("At the same time"))
    return [Lane(title=title, spans=tuple(lane)) for title, lane in zip(titles, _side_by_side(spans), strict=False)]


def _side_by_side(spans: Iterable[Span]) -> list[list[Span]]:
    """Put spans into as few lanes as it takes that none covers another."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda one: one.start_s):
        free = next((lane for lane in lanes if lane[-1].end_s <= span.start_s), None)
        if free is None:
            lanes.append([span])
        else:
            free.append(span)
    return lanes


def _in_words(work: Operation) -> str:
    done, expected = work.bytes_done, work.bytes_expected
    amount = ""
    if done is not None and expected:
        amount = f": {human_bytes(done)} of {human_bytes(expected)} ({human_share(done / expected)})"
    elif expected:
        amount = f": of {human_bytes(expected)}; how much was done is not known"
    item = f", {work.item}" if work.item else ""
    return f"{work.kind} {work.label}{f' of {work.file}{item}' if work.file else ''}{amount}"


def _stretches(values: Sequence[object]) -> list[tuple[int, int]]:
    """Give the first and last place of each stretch of one value, but of None and False."""
    groups = groupby(enumerate(values), lambda one: one[1])
    stretches = ([place for place, _ in group] for value, group in groups if value)
    return [(places[0], places[-1]) for places in stretches]


def _until(frames: Sequence[Frame], place: int) -> float:
    """When what was seen in a frame was over: at the next one."""
    return frames[min(place + 1, len(frames) - 1)].at_s


def happenings(events: Iterable[tuple[float, str, str, dict[str, Any]]]) -> tuple[Happening, ...]:
    """Number events in the order of time. Each is (seconds from the end, kind, text, fields)."""
    ordered = sorted(events, key=lambda one: one[0])
    return tuple(
        Happening(number=number, at_s=at, kind=kind, text=text, weight=_weight(kind, fields))
        for number, (at, kind, text, fields) in enumerate(ordered, 1)
    )


def _weight(kind: str, fields: dict[str, Any]) -> Weight:
    if kind in _BAD_KINDS or (kind == "state_changed" and fields.get("to") in _BAD_STATES):
        return Weight.BAD
    if kind in _WARNING_KINDS or (kind == "warning" and fields.get("severity") != "notice"):
        return Weight.WARNING
    return Weight.PLAIN
