"""What the documentation of the outputs says against the code."""

from __future__ import annotations

import re
from pathlib import Path

from board_makers import incident

from guard.model import Why
from sidecar.outputs import record_file, record_room
from sidecar.outputs.http import ROUTES
from sidecar.outputs.record_store import RecordLimits
from sidecar.outputs.shape import incident_document
from sidecar.outputs.stream import StreamLimits

DOCS = Path(__file__).parents[3] / "docs"
HTTP = (DOCS / "http.md").read_text()
RECORD = (DOCS / "record.md").read_text()


def test_every_route_is_documented() -> None:
    """A page that the 404 lists is in docs/http.md."""
    assert [route for route in ROUTES if f"| `{route}`" not in HTTP and f", `{route}`" not in HTTP] == []


def test_every_reason_for_unknown_is_documented() -> None:
    """Programs match on these words."""
    assert [why.value for why in Why if f"`{why.value}`" not in HTTP] == []


def test_the_incident_is_documented_as_it_is() -> None:
    """Every key of the public shape, and none that is not there."""
    shape = re.search(r'\{"incidents": \[\{(.*?)\}\], "more_in_record": \d+\}', HTTP, re.DOTALL)
    assert shape is not None
    assert set(re.findall(r'"(\w+)"', shape[1])) == {
        *incident_document(incident()),
        *("boot_id", "pid", "start_ticks", "session"),
        *("for", "text", "source"),
        "because",
    }


def test_every_table_and_column_is_documented(tmp_path: Path) -> None:
    """docs/record.md follows the schema."""
    file = record_file.open_record(tmp_path / "record.sqlite", 0.0)
    connection = file.connection
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type='table'").fetchall()
    for (table,) in tables:
        [line] = [line for line in RECORD.splitlines() if line.startswith(f"| `{table}` |")]
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        assert [column for column in columns if f"`{column}`" not in line] == []
    file.close()
    assert f"schema {record_file.SCHEMA_VERSION}" in RECORD


def test_the_numbers_are_those_of_the_code() -> None:
    """Bounds that the pages name."""
    limits, streams = RecordLimits(), StreamLimits()
    assert (limits.max_bytes, limits.keep_seconds) == (64 << 20, 7 * 86400)
    assert (record_file.LOG_BYTES, record_room.RESERVE_BYTES) == (256 << 10, 256 << 10)
    assert (streams.clients, streams.keepalive_seconds, streams.send_seconds) == (32, 15.0, 30.0)
