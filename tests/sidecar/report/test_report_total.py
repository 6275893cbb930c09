"""Whatever a record holds: a report or one line, never a traceback; and redacted means that no name is left."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.record.redact import Redactor
from sidecar.record.words import public_words
from sidecar.report import rows
from sidecar.report.clean import clean
from sidecar.report.page import page
from sidecar.report.tell import Material, tell
from sidecar.report.terminal import text
from tests.sidecar.report.pages import Page
from tests.sidecar.report.reporting import document, event, row

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["unlimited", "load", [], {}, [[]], -1, 0, 1e308, float("nan"), "\x1b[2J", "\ud800", "\u202e"]),
)


@st.composite
def changed(draw: st.DrawFn, made: dict[str, Any]) -> dict[str, Any]:
    """Replace a few values anywhere in JSON by odd ones."""
    copy = json.loads(json.dumps(made))
    for _ in range(draw(st.integers(0, 3))):
        here: Any = copy
        while True:
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(here[key], dict | list) and here[key] and draw(st.booleans()):
                here = here[key]
                continue
            here[key] = draw(odd)
            break
    return copy


@QUICK
@given(
    stored=changed(document()), ticks=st.lists(st.integers(-99, 9).flatmap(lambda at: changed(row(at / 7))), max_size=8)
)
def test_any_record_gives_a_sound_page_and_text(stored: dict[str, Any], ticks: list[dict[str, Any]]) -> None:
    """Values of other types, sizes and signs are left out; the page stays well-formed and the text printable."""
    read = rows.document(clean(stored))
    if read is None:
        return
    told = tell(Material(document=read, rows=clean(ticks), events=[event(-1, "x")], meta={}, seconds=20.0))
    Page.of(page(told, "c")).text.encode()
    said = text(told, columns=80, colours=False, unicode=True)
    assert "\x1b" not in said
    said.encode()


SECRET = st.from_regex(r"zq[a-z]{4,10}", fullmatch=True)


@QUICK
@given(name=SECRET, folder=SECRET, file=SECRET, item=SECRET)
def test_no_name_survives_redaction(name: str, folder: str, file: str, item: str) -> None:
    """Names of the model, its folders, files and tensors appear nowhere in page or text, in no attribute either."""
    path = f"/{folder}/{file}.safetensors"
    group = f"/kubepods/{folder}/{name}"
    work = {
        "kind": "load",
        "label": "torch.load",
        "file": path,
        "item": f"{item}.weight",
        "bytes_done": 1,
        "bytes_expected": 2,
    }
    stored = document(
        model=name,
        level=group,
        summary=f"The kernel killed the model: out of memory at {group} while loading {path}, tensor {item}.weight",
        next=[f"raise the limit of {group}"],
        evidence=[
            {"for": True, "text": f"oom_kill rose in memory.events of {group}", "source": f"memory.events of {group}"}
        ],
        fields={"in_flight_file": path, "in_flight_tensor": f"{item}.weight", "limit_bytes": 5},
    )
    ticks = [row(at, {"name": group, "current": 5, "max": 9}, operations=[work]) for at in range(-9, 0)]
    redactor = Redactor(public_words())
    for value in (stored, *ticks):
        redactor.learn(value)
    read = rows.document(redactor.value(stored))
    assert read is not None
    told = tell(Material(document=read, rows=map(redactor.value, ticks), events=(), meta={}, seconds=20.0))
    for said in (page(told, "c"), text(told, columns=100, colours=False, unicode=True)):
        assert not [secret for secret in (name, folder, file, item) if secret in said]
        assert "5 B" in said
