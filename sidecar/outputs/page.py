"""`/`: one small page for people. No script, no external asset; it reloads itself and fits a phone."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from guard.model import Known, Limit, Reading, Unlimited
from sidecar.board import Board, Event, Incident, ModelView, kept
from sidecar.detect.values import Finding
from sidecar.outputs import answers
from sidecar.outputs.room import room
from sidecar.outputs.shape import iso
from sidecar.outputs.status import operations
from sidecar.sample import Instant

_STYLE = """
:root{color-scheme:light dark}body{overflow-wrap:anywhere;font:15px/1.45 system-ui,sans-serif;
margin:0 auto;max-width:60rem;padding:.8rem}
h1{font-size:1.2rem}h2{font-size:1.05rem;margin:1.4rem 0 .3rem}h3{font-size:.95rem;margin:.8rem 0 .2rem}
table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}
td,th{border-bottom:1px solid #8885;padding:.2rem .4rem;text-align:left;vertical-align:top;white-space:nowrap}
.good{color:#18794e}.bad{color:#c62a2f}.unsure{color:#946800}.state{font-weight:600}
ul{margin:.2rem 0;padding-left:1.2rem}
@media(prefers-color-scheme:dark){.good{color:#4cc38a}.bad{color:#ff8589}.unsure{color:#f1a10d}}
"""
_EVENTS_SHOWN = 30
_INCIDENTS_SHOWN = 10


def render(board: Board, now: Instant) -> bytes:
    """Give the page in UTF-8."""
    models = "".join(_model(board, view, now) for view in board.models.values())
    body = (
        f"<h1>oomguard</h1><p>{escape(iso(now.wall_s))}</p>{_own(board, now)}"
        f"{models or '<p class=unsure>No model has been seen yet.</p>'}"
        f"{_incidents(board)}{_events(board.events)}"
        "<p><a href=status>status</a> · <a href=metrics>metrics</a> · <a href='events?since=0'>events</a> · "
        "<a href=incidents>incidents</a></p>"
    )
    head = (
        "<meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<meta http-equiv=refresh content=5><title>oomguard</title><style>{_STYLE}</style>"
    )
    page = f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>\n"
    return page.encode("utf-8", "replace")


def _own(board: Board, now: Instant) -> str:
    answer = answers.ask_sidecar(board, now, ready=False)
    style = "good" if answer.passed else "bad"
    degraded = _list(board.own.degraded, "unsure")
    return f"<p class={style}>Sidecar: {escape(answer.models[0].reason)}</p>{degraded}"


def _model(board: Board, view: ModelView, now: Instant) -> str:
    said = []
    for question in answers.Question:
        one = answers.ask(board, question, now, view.name).models[0]
        style = "unsure" if not one.certain else "good" if one.passed else "bad"
        said.append(f"<span class={style}>{question.value} {'ok' if one.passed else 'failed'}</span>")
    state = escape(view.judgement.state.value)
    works = tuple(_work(work.label, work.file, work.bytes_done, work.bytes_expected) for work in operations(view))
    findings = tuple(one.text for one in view.answers if isinstance(one, Finding))
    return (
        f"<h2>{escape(view.name)}: <span class=state>{state}</span></h2><p>{' · '.join(said)}</p>"
        f"{_list(view.judgement.reasons)}{_list(findings, 'bad')}{_list(works)}"
        f"{_list((*view.judgement.degraded, *answers.blind(view)), 'unsure')}{_levels(view)}"
    )


def _work(label: str, file: str | None, done: int | None, expected: int | None) -> str:
    sizes = f"{_size(done)} of {_size(expected)}"
    return f"in flight: {label} {file or ''}: {sizes}"


def _size(value: int | None) -> str:
    return "unknown" if value is None else f"{value / 2**20:,.1f} MiB"


def _reading(reading: Reading[int] | Reading[Limit]) -> str:
    if not isinstance(reading, Known):
        return f"<span class=unsure title='{escape(str(reading))}'>unknown ({escape(reading.why.value)})</span>"
    return "unlimited" if isinstance(reading.value, Unlimited) else _size(reading.value)


def _levels(view: ModelView) -> str:
    if view.sample is None or not view.sample.levels:
        return "<p class=unsure>The model's memory is not seen.</p>"
    rows = "".join(
        f"<tr><td>{escape(level.name)}<td>{_reading(room(view.sample, level).headroom_bytes)}"
        f"<td>{_reading(level.memory.current_bytes)}<td>{_reading(level.memory.max_bytes)}"
        for level in view.sample.levels
    )
    return f"<table><tr><th>level<th>headroom<th>memory<th>limit{rows}</table>"


def _incidents(board: Board) -> str:
    newest = kept(board.incidents(), _INCIDENTS_SHOWN)
    more = board.more_in_record(len(newest))
    rest = f"<p>{more} more in the record.</p>" if more else ""
    return "<h2>Ends</h2>" + ("".join(map(_incident, newest)) or "<p>None known.</p>") + rest


def _incident(incident: Incident) -> str:
    verdict = incident.verdict
    what = f"{verdict.end_class.value} ({verdict.confidence.value})"
    who = incident.model if incident.main else f"{incident.model}, a child process"
    said = tuple(f"{'for' if one.supports else 'against'}: {one.text} [{one.source}]" for one in verdict.statements)
    missing = tuple(f"missing: {text}" for text in verdict.missing)
    steps = tuple(f"next: {text}" for text in verdict.next_steps)
    return (
        f"<h3><a href='incidents/{quote(incident.id, safe='')}'>{escape(iso(incident.at.wall_s))}</a> "
        f"{escape(who)}: {escape(what)}</h3><p>{escape(verdict.summary)}</p>"
        f"{_list(said + missing + steps)}"
    )


def _events(events: tuple[Event, ...]) -> str:
    newest = reversed(events[-_EVENTS_SHOWN:])
    said = tuple(f"{iso(one.at.wall_s)} {one.model} {one.kind}: {one.text}" for one in newest)
    return f"<h2>Events</h2>{_list(said) or '<p>None yet.</p>'}"


def _list(texts: tuple[str, ...], style: str = "") -> str:
    items = "".join(f"<li>{escape(text)}" for text in texts)
    return f"<ul class='{style}'>{items}</ul>" if items else ""
