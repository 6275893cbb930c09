"""The demo's summary: its file, and what counts as a broken promise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.demo.summary import Growth, Hang, InFlight, Kill, Reclaim, Summary

FOUND = InFlight(file="model.safetensors", tensor="blocks.3.up.weight", bytes_done=1000, bytes_expected=4000)
HELD = Summary(
    reclaim=Reclaim(plain_failures=12, sidecar_failures=0, probes=20, said_reclaiming=18),
    hang=Hang(plain_failed_after_s=3.9, sidecar_failed_after_s=4.1),
    growth=Growth(warning_lead_s=7.5),
    kill=Kill(end_class="cgroup_oom", level="/a/model", in_flight=FOUND, verdict_after_s=0.2),
    expected_level="/a/model",
)


def test_the_file_has_exactly_the_promised_shape(tmp_path: Path) -> None:
    """The file holds the four scenes with their documented names and nothing else."""
    HELD.write(tmp_path / "summary.json")
    assert json.loads((tmp_path / "summary.json").read_text()) == {
        "reclaim": {"plain_failures": 12, "sidecar_failures": 0, "probes": 20},
        "hang": {"plain_failed_after_s": 3.9, "sidecar_failed_after_s": 4.1},
        "growth": {"warning_lead_s": 7.5},
        "kill": {
            "class": "cgroup_oom",
            "level": "/a/model",
            "in_flight": {
                "file": "model.safetensors",
                "tensor": "blocks.3.up.weight",
                "bytes_done": 1000,
                "bytes_expected": 4000,
            },
            "verdict_after_s": 0.2,
        },
    }


def test_unknown_is_null_and_never_zero(tmp_path: Path) -> None:
    """What was not seen is null in the file."""
    nothing = InFlight(file=None, tensor=None, bytes_done=None, bytes_expected=None)
    blind = replace(
        HELD,
        growth=Growth(warning_lead_s=None),
        kill=Kill(end_class=None, level=None, in_flight=nothing, verdict_after_s=None),
    )
    blind.write(tmp_path / "summary.json")
    document = json.loads((tmp_path / "summary.json").read_text())
    assert document["growth"] == {"warning_lead_s": None}
    assert set(document["kill"]["in_flight"].values()) == {None}
    assert document["kill"]["verdict_after_s"] is None


def test_nothing_is_broken_when_all_held() -> None:
    """A run in which all promises held names none."""
    assert list(HELD.broken()) == []


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (replace(HELD, reclaim=replace(HELD.reclaim, plain_failures=0)), "plain probe never failed"),
        (replace(HELD, reclaim=replace(HELD.reclaim, sidecar_failures=1)), "failed a healthy server 1 times"),
        (replace(HELD, reclaim=replace(HELD.reclaim, said_reclaiming=0)), "never said"),
        (replace(HELD, hang=replace(HELD.hang, plain_failed_after_s=None)), "did not notice the deadlock"),
        (replace(HELD, hang=replace(HELD.hang, sidecar_failed_after_s=None)), "did not fail the deadlocked server"),
        (replace(HELD, hang=replace(HELD.hang, sidecar_failed_after_s=60.0)), "did not fail the deadlocked server"),
        (replace(HELD, growth=Growth(warning_lead_s=None)), "no warning"),
        (replace(HELD, growth=Growth(warning_lead_s=0.5)), "no warning"),
        (replace(HELD, kill=replace(HELD.kill, end_class="unknown")), "not cgroup_oom"),
        (replace(HELD, kill=replace(HELD.kill, level="/a")), "names the limit of /a"),
        (replace(HELD, kill=replace(HELD.kill, in_flight=replace(FOUND, tensor=None))), "not known"),
        (replace(HELD, kill=replace(HELD.kill, verdict_after_s=1.5)), "no verdict within 1 s"),
    ],
)
def test_a_broken_promise_is_named(broken: Summary, said: str) -> None:
    """Each promise that does not hold gives exactly one sentence about it."""
    sentences = list(broken.broken())
    assert len(sentences) == 1
    assert said in sentences[0]
