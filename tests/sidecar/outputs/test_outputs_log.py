"""The log on real pipes and files."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from board_makers import DENIED, FrozenClock
from hypothesis import given
from hypothesis import strategies as st

from guard.model import UNLIMITED, Known
from sidecar.outputs.log import LINE_BYTES, JsonLog, capture_stdlib
from sidecar.sample import Instant


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A real pipe; the reading end does not block."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    for fd in (reading, writing):
        try:
            os.close(fd)
        except OSError:
            continue  # the test closed it


def lines(fd: int) -> list[dict[str, Any]]:
    """What was written so far."""
    data = b""
    try:
        while chunk := os.read(fd, 65536):
            data += chunk
    except BlockingIOError:
        pass
    return [json.loads(line) for line in data.splitlines()]


def test_a_line_is_one_object_with_both_clocks(pipe: tuple[int, int]) -> None:
    """Wall time in ISO, monotonic time in seconds, level, event, then what was given; readings keep their reason."""
    log = JsonLog(clock=FrozenClock(), fd=pipe[1])
    log.info("model_seen", model="llm", limit=Known(UNLIMITED), vmstat=DENIED, pid=7)
    assert lines(pipe[0]) == [
        {
            "ts": "2025-10-09T08:53:20.000Z",
            "mono": 1000.0,
            "level": "info",
            "event": "model_seen",
            "model": "llm",
            "limit": {"value": "unlimited"},
            "vmstat": {"unknown": "denied", "where": "/proc/vmstat", "errno": 13},
            "pid": 7,
        }
    ]


def test_levels_below_the_set_one_are_left_out(pipe: tuple[int, int]) -> None:
    """`warning` leaves out debug and info."""
    log = JsonLog(clock=FrozenClock(), fd=pipe[1], level="warning")
    for say in (log.debug, log.info, log.warning, log.error):
        say("x")
    assert [line["level"] for line in lines(pipe[0])] == ["warning", "error"]


def test_an_event_that_comes_too_often_is_counted(pipe: tuple[int, int]) -> None:
    """A thousand at once are twenty lines; the next line of that name says how many were left out; others go on."""
    clock = FrozenClock()
    log = JsonLog(clock=clock, fd=pipe[1])
    for _ in range(1000):
        log.info("storm")
    log.info("calm")
    clock.at = Instant(clock.at.monotonic_s + 5, clock.at.wall_s)
    log.info("storm")
    said = lines(pipe[0])
    assert [line["event"] for line in said] == ["storm"] * 20 + ["calm", "storm"]
    assert said[-1]["suppressed"] == 980


def test_endless_event_names_cost_bounded_memory(pipe: tuple[int, int]) -> None:
    """Names made by a library do not pile up."""
    log = JsonLog(clock=FrozenClock(), fd=pipe[1])
    for number in range(5000):
        log.write("info", f"name-{number}", {})
    assert len(log._rates) <= 512


def test_a_reader_that_stops_loses_lines_but_blocks_nobody(pipe: tuple[int, int]) -> None:
    """A full pipe drops lines; when it is read again, the next line says how many were lost."""
    log = JsonLog(clock=FrozenClock(), fd=pipe[1], burst=100_000)
    for number in range(1000):
        log.info("x", number=number, padding="p" * 500)
    read = lines(pipe[0])
    assert 0 < len(read) < 1000
    log.info("after")
    [after] = lines(pipe[0])
    assert after["lost"] == 1000 - len(read)
    log.info("then")
    assert "lost" not in lines(pipe[0])[0]


def test_a_reader_that_has_gone_is_no_error(pipe: tuple[int, int]) -> None:
    """Neither a closed pipe nor a closed descriptor raises."""
    log = JsonLog(clock=FrozenClock(), fd=pipe[1])
    os.close(pipe[0])
    log.info("x")
    assert log.lost == 1
    os.close(pipe[1])
    log.info("x")
    assert log.lost == 2


@given(
    st.text(max_size=50),
    st.dictionaries(
        st.text(max_size=10),
        st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.binary(), st.lists(st.integers())),
        max_size=8,
    ),
)
def test_anything_makes_one_short_line(event: str, fields: dict[str, object]) -> None:
    """Whatever is logged: valid JSON, one line, within the bound."""
    reading, writing = os.pipe()
    try:
        JsonLog(clock=FrozenClock(), fd=writing).write("info", event, fields)
        data = os.read(reading, 65536)
    finally:
        os.close(reading)
        os.close(writing)
    assert data.count(b"\n") == 1
    assert len(data) <= LINE_BYTES
    assert json.loads(data)["level"] == "info"


@pytest.mark.parametrize(
    "fields",
    [{"a": "x" * 10_000}, {f"k{number}": "é" * 1000 for number in range(50)}, {"a": list(range(5000))}],
    ids=["long-text", "many-texts", "long-list"],
)
def test_a_line_too_long_is_cut_and_stays_json(pipe: tuple[int, int], fields: dict[str, object]) -> None:
    """A pipe takes 4096 bytes as a whole; what does not fit goes, and the line says so."""
    JsonLog(clock=FrozenClock(), fd=pipe[1]).write("info", "x", fields)
    data = os.read(pipe[0], 65536)
    assert len(data) <= LINE_BYTES
    said = json.loads(data)
    assert said.get("cut") or "(10000 characters)" in said["a"]


def test_a_very_long_event_name_is_cut(pipe: tuple[int, int]) -> None:
    """The head is bounded as well."""
    JsonLog(clock=FrozenClock(), fd=pipe[1]).info("e" * 10_000)
    assert len(os.read(pipe[0], 65536)) <= LINE_BYTES


def test_fields_cannot_replace_the_head(pipe: tuple[int, int]) -> None:
    """A field named like a part of the head gets an underscore."""
    JsonLog(clock=FrozenClock(), fd=pipe[1]).write("info", "x", {"ts": 1, "event": "y"})
    [line] = lines(pipe[0])
    assert (line["event"], line["event_"], line["ts_"]) == ("x", "y", 1)


def test_what_libraries_log_has_the_same_form(pipe: tuple[int, int]) -> None:
    """Errors of aiohttp or asyncio are lines with logger, message, error and place; undoing restores the old state."""
    before = logging.getLogger().handlers[:]
    undo = capture_stdlib(JsonLog(clock=FrozenClock(), fd=pipe[1]))
    try:
        logging.getLogger("aiohttp.server").info("not this one")
        try:
            int("bad\nthing")
        except ValueError:
            logging.getLogger("aiohttp.server").exception("Error handling request from %s", "::1")
        logging.getLogger("asyncio").warning("%d", "not a number")
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    finally:
        undo()
    first, second, third = lines(pipe[0])
    assert (first["event"], first["level"], first["logger"]) == ("library_aiohttp.server", "error", "aiohttp.server")
    assert (first["message"], first["error"]) == (
        "Error handling request from ::1",
        "ValueError: invalid literal for int() with base 10: 'bad\\nthing'",
    )
    assert first["where"].startswith("test_outputs_log.py:")
    assert second["message"] == "%d (TypeError while formatting)"
    assert "DeprecationWarning: old" in third["message"]
    assert logging.getLogger().handlers == before
