"""The evidence of an end in the record: what is written is read back, and not everything that stands there is."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.box.faults import NativeFault
from guard.model import ExitMark, Known
from sidecar.outputs.evidence_shape import LIMIT_BYTES, evidence_from, pack_evidence
from sidecar.outputs.shape import plain
from sidecar.verdict.classify import classify
from sidecar.verdict.supervisor_values import SupervisorEnd, SupervisorWord, SupervisorWordKind
from sidecar.verdict.values import ChildEnd, EndClass, EndEvidence, GpuEvent
from tests.sidecar import making as make
from tests.sidecar.verdict.ending import BASE, END, KILLED, OWN_OOM, POD_OOM, box, ended, failure, report

WORD = SupervisorWord(kind=SupervisorWordKind.EVICTION, text="low on memory", at_wall_s=5.0)
WHOLE = replace(
    BASE,
    wait_status=KILLED,
    levels=POD_OOM,
    kmsg=report("/pod", "/pod/model"),
    box=box(
        failures=(failure("cuda_out_of_memory"),),
        operations=(make.load("torch.load", None),),
        mark=ExitMark(1.0, 2.0, None),
    ),
    fault=Known(NativeFault("Aborted", "SIGABRT", ("a.py:1 f",), "")),
    gpu=(GpuEvent(at=make.at(END), gpu=1, code=None),),
    children=(ChildEnd(incident="i", at=make.at(END), end_class=EndClass.CRASH_SIGNAL, summary="it crashed"),),
    supervisor=(SupervisorEnd(source="API", exit_code=137, words=(WORD,)),),
    liveness_failing=(make.at(1), make.at(2)),
    sigterm_wall_s=3.0,
)


@pytest.mark.parametrize("one", [BASE, WHOLE, replace(BASE, levels=OWN_OOM, wait_status=ended(3))])
def test_what_is_written_is_read_back(one: EndEvidence) -> None:
    """Readings, unknown ones with their reasons, levels, records and words come back the same."""
    again = evidence_from(pack_evidence(one))
    assert again == one
    assert classify(again) == classify(one)


def test_v1_levels_are_read_back() -> None:
    """Unlimited stays unlimited, and no number."""
    level = make.level(make.V1(rss=5, oom_kill=1))
    one = replace(BASE, levels=tuple(replace(pair, before=level, after=level) for pair in OWN_OOM))
    assert evidence_from(pack_evidence(one)) == one


def _spoilt(document: Any, path: list[int], value: object) -> object:  # noqa: ANN401 - JSON
    """Put a value somewhere into a document."""
    if not path or not isinstance(document, dict | list) or not document:
        return value
    keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    key = keys[path[0] % len(keys)]
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[key] = _spoilt(document[key], path[1:], value)
    return copy


@given(
    path=st.lists(st.integers(0, 30), min_size=1, max_size=7),
    value=st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just([]), st.just({})),
)
def test_whatever_stands_there_is_evidence_or_none(path: list[int], value: object) -> None:
    """A document with one value spoilt is read as evidence that can be judged, or not at all."""
    found = evidence_from(zlib.compress(json.dumps(_spoilt(plain(WHOLE), path, value)).encode()))
    if found is not None:
        assert classify(found).summary


@given(st.binary(max_size=200))
def test_any_bytes_are_read(packed: bytes) -> None:
    """Noise gives none, and never an error."""
    assert evidence_from(packed) is None
    assert evidence_from(zlib.compress(packed)) is None


def test_a_document_that_unpacks_without_end_is_none() -> None:
    """A small packed document can hold gigabytes of zeros: only so much of it is unpacked."""
    assert evidence_from(zlib.compress(b" " * (4 * LIMIT_BYTES) + json.dumps(plain(BASE)).encode())) is None
