"""Values to JSON."""

from __future__ import annotations

import json
import math

from board_makers import DENIED, board, incident, level, sample, view
from hypothesis import given
from hypothesis import strategies as st

from guard.model import UNLIMITED, Known
from sidecar.outputs import shape, status
from sidecar.sample import Instant


def test_unknown_unlimited_and_a_number_are_three_things() -> None:
    """None of them is null or zero."""
    assert shape.plain(DENIED) == {"unknown": "denied", "where": "/proc/vmstat", "errno": 13}
    assert shape.plain(Known(UNLIMITED)) == {"value": "unlimited"}
    assert shape.plain(Known(0)) == {"value": 0}


def test_status_holds_every_reading_of_every_level() -> None:
    """A level is the kernel's values with what could not be read beside them."""
    document = json.loads(status.render(board(view()), Instant(1000.5, 1_760_000_000.5)))
    memory = document["models"]["llm"]["sample"]["levels"][0]["memory"]
    assert memory["current_bytes"] == {"value": 104857600}
    assert memory["high_bytes"] == {"value": "unlimited"}
    assert memory["failcnt"]["unknown"] == "unsupported"
    assert memory["low_bytes"]["unknown"] == "missing"
    assert document["sidecar"]["tick_age_seconds"] == 0.5
    assert document["models"]["llm"]["operations"][0]["bytes_expected"] == 100 << 20


def test_numbers_that_json_lacks_are_named() -> None:
    """Infinity and not-a-number are words, as null would say "no value"."""
    assert [shape.plain(math.inf), shape.plain(math.nan)] == ["inf", "nan"]


def test_file_names_that_are_not_utf8_do_not_break_a_page() -> None:
    """A lone surrogate, as os.fsdecode makes it, becomes a question mark."""
    assert json.loads(shape.encode({"file": "a\udcff"})) == {"file": "a?"}


@given(st.floats())
def test_any_clock_has_a_text(wall_s: float) -> None:
    """A wall clock beyond the calendar is shown in seconds, not refused."""
    assert shape.iso(wall_s)


def test_an_incident_survives_its_json() -> None:
    """Reading back gives the same incident but for its samples."""
    made = incident()
    read = shape.incident_from(shape.encode(shape.incident_document(made)))
    assert read is not None
    assert (read.id, read.at, read.life, read.verdict) == (made.id, made.at, made.life, made.verdict)


def test_an_incident_has_the_public_shape() -> None:
    """Programs read these names."""
    document = shape.incident_in_full(incident())
    assert document["class"] == "cgroup_oom"
    assert document["at"] == "2025-10-09T08:53:20.000Z"
    assert document["evidence"] == [
        {"for": True, "text": "oom_kill rose from 0 to 1", "source": "memory.events of /pod/model"}
    ]
    assert document["fields"] == {"limit_bytes": 268435456, "file": None}
    assert document["next"] == ["raise the limit"]
    assert document["last_sample"] == shape.plain(sample())
    assert document["levels_after"] == []


@given(st.binary(max_size=200))
def test_any_bytes_are_an_incident_or_none(data: bytes) -> None:
    """A record that somebody else wrote to cannot raise here."""
    assert shape.incident_from(data) is None


def test_a_level_is_json_whatever_the_files_say() -> None:
    """Malformed files are readings too."""
    assert shape.encode(shape.plain(level(memory_current=b"\xff\x00", memory_stat=b"anon\n")))
