"""Any text gives an answer, in time linear in its length, and however it is cut into blocks."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.explain import show
from sidecar.explain.engine import InputParser
from sidecar.explain.incidents import incidents
from sidecar.explain.messages.table import ALL
from sidecar.explain.reading import STEMS, explain, feed_block
from sidecar.explain.values import Report
from tests.sidecar.explain.explain_texts import TEXTS
from tests.sidecar.explain.explaining import explained, signs_of

_CORPUS = Path(__file__).parents[2] / "corpus" / "raw"
_PIECES = st.sampled_from(
    [
        *(line for texts in TEXTS.values() for text in texts for line in text.split("\n")),
        *(
            "[ 12.000001] ",
            "Jul 23 18:56:46 host kernel: ",
            "2024-01-01T00:00:00Z ",
            "<6>",
            "6,1,2,-;",
            "  ",
            "\t",
            "{",
            "}",
        ),
        *(
            "State: {",
            "Last State:",
            "Exit Code: 137",
            '"OOMKilled": true,',
            "memory.max 12",
            "oom_kill 3",
            "\x00",
            "\x1b[31m",
        ),
        *("Killed process ", "(x)", "99999999999999999999", "-1", "NaN", "1e999", "0001-01-01T00:00:00Z", "\r"),
    ]
)
_LINES = st.lists(st.one_of(_PIECES, st.text(max_size=40)), max_size=4).map("".join)


@settings(max_examples=300)
@given(st.lists(_LINES, max_size=12))
def test_no_text_raises(lines: list[str]) -> None:
    """Whatever the lines are, there is an answer that can be written as JSON and as text."""
    found = incidents(signs_of("\n".join(lines)))
    report = Report(incidents=found, inputs=())
    assert len(json.loads(show.as_json(report))["incidents"]) == len(found)
    assert show.as_text(report)


@settings(max_examples=100)
@given(st.binary(max_size=4000))
def test_no_bytes_raise(data: bytes) -> None:
    """Binary data has no lines to speak of, and no incident comes of it by an error."""
    parser = InputParser("file")
    assert feed_block(data, 0, parser) >= 0
    parser.finish()


@settings(max_examples=200)
@given(st.sampled_from(sorted(path.name for path in _CORPUS.iterdir())), st.data())
def test_cut_anywhere(name: str, data: st.DataObject) -> None:
    """A text that is cut at any place gives an answer."""
    text = (_CORPUS / name).read_text(encoding="utf-8")
    explained(file=text[: data.draw(st.integers(0, len(text)))])


_HOSTILE = {
    "parentheses": "Killed process 1 (" + "(" * 60,
    "blanks": "a:" + " " * 60 + "x",
    "shm": "/dev/shm" * 8,
    "sizes": "Tried to allocate 1" + "1" * 60,
    "times": "[" + "9" * 60 + "]",
    "quotes": '"Container ' + "a" * 60,
    "json": "[" * 60,
    "hedges": "if " * 20 + "out of memory",
    "oom": "oom-kill:constraint=" + ",task=" * 10,
    "probe": "Liveness probe failed: " * 3,
    "signal": "signal: killed by signal " * 3,
    "names": "a.b-" * 15 + " invoked oom-killer",
    "stores": '{"at": "2024-99-99T00:00:00", "message": "Out of memory',
    "writers": "[pod/a/b] " * 6,
    "tables": "a" + " " * 60 + "0/1 OOMKille",
    "codes": "ExitCode:1 OOMKilled:tru " * 3,
    "numbers": "total_region_allocated_bytes_: 1 memory_limit_: 1 " * 2,
}


def _seconds(text: str) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        explained(file=text)
        best = min(best, time.process_time() - began)
    return best


@pytest.mark.parametrize("name", _HOSTILE)
@pytest.mark.parametrize("joint", ["", "\n"], ids=["one line", "many lines"])
def test_twice_the_text_takes_twice_the_time(name: str, joint: str) -> None:
    """Near matches, as one long line and as many lines, cost time in proportion: no pattern is quadratic."""
    text = joint.join([_HOSTILE[name]] * 300)
    once, twice = _seconds(text), _seconds(joint.join([text, text]))
    assert twice <= max(4 * once, once + 0.05)


def test_one_failure_told_thousands_of_times_is_linear() -> None:
    """An incident with thousands of signs is not compared sign by sign."""
    line = "a process was killed by signal 9\n"
    once, twice = _seconds(line * 1500), _seconds(line * 3000)
    assert twice <= max(3 * once, once + 0.05)


def test_very_long_lines_are_cut_not_searched() -> None:
    """A line of 8 MB takes no longer than its reading."""
    assert _seconds("Liveness probe failed: " * 400_000) < 2.0


@pytest.mark.parametrize("name", ["a02", "a53", "b04", "b33", "c15", "e04", "f01", "d08"])
def test_a_needle_in_a_large_log_is_found(name: str, tmp_path: Path) -> None:
    """The fast way through large inputs gives the answer that the lines alone give, with their right numbers."""
    needle = (_CORPUS / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")
    hay = "2024-01-01T00:00:00Z host app: a line of no interest, number one of many\n" * 30_000
    file = tmp_path / "large.log"
    file.write_text(f"{hay}{needle}\n{hay}", encoding="utf-8")
    alone, (*found,) = explained(file=needle), explain((str(file),)).incidents
    assert [(one.end_class, one.summary) for one in found] == [(one.end_class, one.summary) for one in alone]
    assert [said.line - 30_000 for one in found for said in one.evidence] == [
        said.line for one in alone for said in one.evidence
    ]


def test_gzip_is_read(tmp_path: Path) -> None:
    """Rotated logs are packed; they are read as they are."""
    file = tmp_path / "kern.log.1.gz"
    file.write_bytes(gzip.compress((_CORPUS / "a49.txt").read_bytes()))
    assert [one.end_class.value for one in explain((str(file),)).incidents] == ["global_oom"]


def test_noise_is_no_incident(tmp_path: Path) -> None:
    """A file of random bytes gives an answer without an incident."""
    file = tmp_path / "noise"
    file.write_bytes(os.urandom(6 << 20))
    assert explain((str(file),)).incidents == ()


def test_every_word_holds_a_stem() -> None:
    """What the line by line way finds, the fast way finds too: no message is known by a word without a stem."""
    stems = [stem.decode() for stem in STEMS]
    known = {word for pattern in ALL for word in pattern.words if pattern.subject != "harmless"}
    assert {word for word in known if not any(stem in word for stem in stems)} == set()
    assert all(stem == stem.lower() for stem in stems)
