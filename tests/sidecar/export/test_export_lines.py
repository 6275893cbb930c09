"""The flat table: order, counts, and what unknown and unlimited look like."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.export.columns import Cell, Cells, Kind, Shape, columns
from sidecar.export.formats import Format, table
from sidecar.export.lines import lines
from sidecar.record.reading import Span, open_record
from tests.sidecar.outputs.board_makers import event, sample
from tests.sidecar.record.keeping import Content, at, ended, keep, minute, series, told, writer

EVERYTHING = Span(None, None, None)


def rows(path: Path, span: Span = EVERYTHING) -> list[dict[str, Cell]]:
    """The table as dicts of what is known."""
    with open_record(path) as reader:
        found = list(lines(reader, span))
    made = columns(Shape(levels=2))
    names = [column.name for column in made]
    cells = [Cells(made).of(line.kind, line.row) for line in found]
    return [{name: cell for name, cell in zip(names, one, strict=True) if cell is not None} for one in cells]


def test_a_row_has_everything_that_a_cause_needs(tmp_path: Path) -> None:
    """Usage, limits, kill counters, memory by kind, stalls, node, probe, state: each beside its time."""
    content = Content(samples=[sample(at(0))])
    (row,) = rows(keep(tmp_path / "record.sqlite", content))
    expected: Mapping[str, Cell] = {
        "kind": "sample",
        "model": "llm",
        "boot_id": "boot-1",
        "at": "2025-10-09T08:53:20.000Z",
        "ends": 0,
        "state": "ok",
        "live": True,
        "ready": True,
        "sight": "handover",
        "hidden_ancestors": False,
        "probe_latency_seconds": 0.02,
        "probe_outcome": "ok",
        "node_mem_available_bytes": 4 << 30,
        "main_pid": 7,
        "main_rss_anon_bytes": 50 << 20,
        "main_rss_file_bytes": 10 << 20,
        "alive_processes": 1,
        "alive_rss_anon_bytes": 50 << 20,
        "operations": 1,
        "operation_file": "/models/<b>.safetensors",
        "node_memory_psi_some_us": 1500000,
        "node_io_psi_full_us": 500000,
        "level0_name": "/pod/model",
        "level0_current_bytes": 104857600,
        "level0_peak_bytes": 204857600,
        "level0_max_bytes": 268435456,
        "level0_max_unlimited": False,
        "level0_high_unlimited": True,
        "level0_events_oom_kill": 1,
        "level0_events_max": 12,
        "level0_anon_bytes": 52428800,
        "level0_mapped_file_bytes": 4096,
        "level0_shmem_bytes": 1048576,
        "level0_major_faults": 42,
        "level0_memory_psi_some_us": 1500000,
        "level0_swap_max_bytes": 0,
        "level1_max_unlimited": True,
    }
    assert expected == {name: row.get(name) for name in expected}
    unknown = {"node_oom_kill", "main_rss_shmem_bytes", "alive_rss_shmem_bytes", "node_cpu_psi_some_us", "exit_code"}
    unknown |= {"level0_high_bytes", "level1_max_bytes", "level0_failcnt", "main_cpu_ticks", "level0_events_local_oom"}
    assert not unknown & set(row)


def test_the_last_minute_is_there_at_full_rate_and_each_row_once(tmp_path: Path) -> None:
    """Rows that are among the samples and in the series come once; overlapping minutes do not repeat."""
    content = minute(3)
    later = series([sample(at(tenth / 10)) for tenth in range(10, 26)])
    content.incidents.append((ended(2.5, session="s2", main=False), later))
    table_ = rows(keep(tmp_path / "record.sqlite", content))
    times = [row["monotonic_s"] for row in table_ if row["kind"] == "sample"]
    assert times == [round(1000.0 + tenth / 10, 3) for tenth in range(26)]


def test_ends_count_on_the_clock_also_those_that_are_gone(tmp_path: Path) -> None:
    """A count rises with each end of a main process, begins with what the record no longer holds.

    The newest end counts although the sidecar has not counted it, as its verdict may still change.
    """
    path = tmp_path / "record.sqlite"
    ends = [(ended(second, session=f"s{second}", main=second != 3), None) for second in (1, 2, 3, 4)]
    ends[-1] = (replace(ends[-1][0], counted_as=None), None)
    with writer(path, Content(samples=[sample(at(second + 0.5)) for second in range(5)], incidents=ends)) as record:
        record.connection.execute("DELETE FROM incidents WHERE id = 's1'")
    found = [(row["kind"], row["ends"]) for row in rows(path)]
    assert found == [
        *(("sample", 1), ("sample", 1), ("incident", 2), ("sample", 2), ("incident", 2), ("sample", 2)),
        *(("incident", 3), ("sample", 3)),
    ]
    since = Span("llm", at(4.2).wall_s, None)
    assert [row["ends"] for row in rows(path, since)] == [3]


def test_what_a_supervisor_tells_is_in_the_columns_of_an_end(tmp_path: Path) -> None:
    """Exit code, signal and restart count stand in their own columns, whether an event or an incident says them."""
    said = {"exit_code": 137, "restart_count": 4, "oom_killed": True}
    event_ = replace(told(1, 0), kind="supervisor_told", fields=said)
    end = ended(1)
    end = replace(end, verdict=replace(end.verdict, fields={"signal": "SIGKILL", "restart_count": 5}))
    first, second = rows(keep(tmp_path / "record.sqlite", Content(events=[event_], incidents=[(end, None)])))
    assert (first["exit_code"], first.get("signal"), first["restart_count"]) == (137, None, 4)
    assert (second.get("exit_code"), second["signal"], second["restart_count"]) == (None, "SIGKILL", 5)


def test_order_is_by_boot_and_its_own_clock(tmp_path: Path) -> None:
    """A wall clock that jumps back by an hour, and a boot that thinks it is 1970, change no order."""
    first = Content(
        samples=[sample(at(0)), sample(at(2, wall=1_759_990_000.0))],
        events=[told(1, 1)],
        incidents=[(ended(1.5), None)],
    )
    second = Content(samples=[sample(at(-999.0, wall=5.0))], events=[event(2, "booted")], boot_id="boot-2")
    found = [
        (row["boot_id"], row["kind"], row["monotonic_s"]) for row in rows(keep(tmp_path / "r.sqlite", first, second))
    ]
    assert found == [
        ("boot-1", "sample", 1000.0),
        ("boot-1", "event", 1001.0),
        ("boot-1", "incident", 1001.5),
        ("boot-1", "sample", 1002.0),
        ("boot-2", "sample", 1.0),
        ("boot-2", "event", 1000.0),
    ]


def test_the_three_formats_hold_the_same(tmp_path: Path) -> None:
    """Unknown is an empty cell, null and null; types are kept; a row of JSON has the columns of its kind."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    with open_record(keep(tmp_path / "record.sqlite", minute())) as reader:
        found = list(lines(reader, EVERYTHING))
    made = columns(Shape(levels=2))
    files = {form: io.BytesIO() for form in Format}
    for form, file in files.items():
        into = table(form, file, made)
        for line in found:
            into.add(line.kind, Cells(made).of(line.kind, line.row))
        into.close()
        file.seek(0)
    stored = parquet.read_table(files[Format.PARQUET])
    typed = stored.to_pylist()
    texts = list(csv.DictReader(io.TextIOWrapper(files[Format.CSV], newline="")))
    objects = [msgspec.json.decode(one) for one in files[Format.JSONL].read().splitlines()]
    assert len(typed) == len(texts) == len(objects) == 23
    assert [as_text(row) for row in typed] == texts
    assert all({name: row[name] for name in one} == one for row, one in zip(typed, objects, strict=True))
    assert stored.schema.field("level0_max_bytes").type == pyarrow.int64()
    assert stored.schema.field("level1_max_unlimited").type == pyarrow.bool_()
    assert {"event_text", "at"} <= set(objects[typed.index(next(row for row in typed if row["kind"] == "event"))])
    assert "level0_max_bytes" not in next(one for one in objects if one["kind"] == "event")


def as_text(row: Mapping[str, Cell]) -> dict[str, str]:
    """A typed row as CSV has it."""
    return {
        name: "" if cell is None else str(cell).lower() if isinstance(cell, bool) else str(cell)
        for name, cell in row.items()
    }


hostile: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("levels", "max", "stat")) | st.text(), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(("levels", "gpus", "node", "probe", "state")), hostile), st.sampled_from(Kind))
def test_any_row_gives_cells_of_the_columns_types(row: dict[str, Any], kind: Kind) -> None:
    """What is not of a column's type is unknown; nothing raises, and nothing is beyond 64 bits."""
    made = columns(Shape().widened(row))
    for column, cell in zip(made, Cells(made).of(kind, row), strict=True):
        assert cell is None or kind in column.kinds
        assert not isinstance(cell, int) or -(1 << 63) <= cell < 1 << 63
