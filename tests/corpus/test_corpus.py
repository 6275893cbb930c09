"""Every case of the corpus: the class is right, the listed fields are read, unknown stays unknown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from sidecar.explain import show
from sidecar.explain.reading import explain
from sidecar.verdict.values import Confidence, EndClass
from tests.corpus.mapping import FIELDS, field

HERE: Final = Path(__file__).parent
CASES: Final = [json.loads(line) for line in (HERE / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
_SILENT: Final = ("none", "parse_only")
_ALLOWED: Final = {"application_exit": "crash_signal", "unknown": "external_kill"}
_EVENTS: Final = {"gpu_alloc_failure": "gpu_allocation_failure", "host_alloc_failure": "host_allocation_failure"}
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def answered(case: Mapping[str, Any]) -> dict[str, Any]:
    """Give the answer to one case as a program would get it."""
    answer: dict[str, Any] = json.loads(show.as_json(explain((str(HERE / case["raw"]),))))
    return answer


def raw(case: Mapping[str, Any]) -> str:
    """Give the text of one case."""
    path: Path = HERE / case["raw"]
    return path.read_text(encoding="utf-8")


def named(case: Mapping[str, Any]) -> str:
    """Name a case for pytest."""
    return str(case["id"])


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_class_is_right(case: Mapping[str, Any]) -> None:
    """Each incident of a case has the class of its family; where nothing ended there is none."""
    classes = [one["class"] for one in answered(case)["incidents"]]
    family = case["family"]
    if family in _SILENT:
        assert classes == []
    elif family == "multi":
        events = [*case["expected"]["events"], case["expected"].get("final", {})]
        kinds = [event["classification"] for event in events if event]
        said = [_EVENTS.get(kind, kind) for kind in kinds if kind != "not_a_failure"]
        assert classes == said
    else:
        assert classes
        assert set(classes) <= {family, _ALLOWED.get(family, family)}


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_fields_are_read(case: Mapping[str, Any]) -> None:
    """Every listed field has the value that is printed; what is null is null."""
    answer = answered(case)
    incidents, readings = answer["incidents"], answer["inputs"][0]["fields"]
    for number, event in enumerate(_events(case)):
        for key, expected in event.items():
            find = FIELDS.get(key, field(key))
            if find is None or (not incidents and case["kind"] != "d"):
                continue
            if key == "confidence" and expected not in list(Confidence):
                continue  # a remark
            assert incidents or key in readings, key
            found = find(incidents[number:]) if incidents else readings[key]
            assert agrees(expected, found, raw(case)), f"{key}: expected {expected!r}, found {found!r}"


def _events(case: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give what is expected of each incident."""
    expected = case["expected"]
    if case["family"] in _SILENT and case["kind"] != "d":
        return []
    if "final" in expected:
        return [expected["final"]]
    events = expected.get("events")
    if not isinstance(events, list) or case["kind"] == "e":
        return [expected]
    return [{**expected, **events[0]}, *events[1:]]


def agrees(expected: Any, found: Any, text: str) -> bool:  # noqa: ANN401 - values of JSON
    """Compare an expected value with the one found, within what the text prints."""
    if isinstance(expected, dict):
        found = found[0] if isinstance(found, list) and found else found
        return isinstance(found, dict) and all(agrees(value, found.get(key), text) for key, value in expected.items())
    if isinstance(expected, list):
        ordered = isinstance(found, list) and len(found) == len(expected)
        pairs = zip(expected, found or (), strict=False)
        same = ordered and all(agrees(one, other, text) for one, other in pairs)
        return same or (isinstance(found, list) and _sorted(found) == _sorted(expected))
    if isinstance(expected, bool) and found is None:
        return expected is False
    if isinstance(expected, int) and isinstance(found, int) and not isinstance(expected, bool):
        return abs(expected - found) <= _slack(expected, text)
    if isinstance(expected, str) and isinstance(found, str):
        return expected.lower() == found.lower() or expected.lower().startswith(f"{found.lower()} ")
    return bool(expected == found)


def _sorted(values: list[Any]) -> list[str]:
    return sorted(map(repr, values))


def _slack(value: int, text: str) -> int:
    """Allow 0.01 of the unit in which a size is printed with decimals, nothing where it is printed whole."""
    if str(value) in text:
        return 0
    slack = 0
    for number, unit in re.findall(r"(\d+\.\d+) ?([KMG]?)i?B", text):
        if abs(float(number) * _UNITS[unit] - value) <= 0.01 * _UNITS[unit]:
            slack = max(slack, int(0.01 * _UNITS[unit]))
    return slack


def test_the_corpus_is_whole() -> None:
    """Every text belongs to a case and every case has its text: 115 of each."""
    names = sorted(case["raw"].removeprefix("raw/") for case in CASES)
    assert names == sorted(path.name for path in (HERE / "raw").iterdir())
    assert len(names) == 115


@pytest.mark.parametrize("case", CASES, ids=named)
def test_answers_are_complete(case: Mapping[str, Any]) -> None:
    """Every incident has a known class and confidence, evidence with a line of the text, and something to do next."""
    answer = answered(case)
    lines = raw(case).count("\n") + 1
    for one in answer["incidents"]:
        assert one["class"] in list(EndClass)
        assert one["confidence"] in list(Confidence)
        assert one["summary"]
        assert one["next"]
        assert [said for said in one["evidence"] if said["for"]]
        assert all(1 <= said["line"] <= lines for said in one["evidence"])
        assert one["class"] != "unknown" or one["missing"]
