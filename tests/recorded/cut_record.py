"""A sidecar's record made small enough to keep, and free of where it was made.

    python -m tests.recorded.cut_record SOURCE DESTINATION [OLD=NEW ...]

SOURCE is a record that no sidecar has open. Every end stays. The newest two keep their minute at full rate, cut to that
life, and no samples; for the one before them it is the other way round; the oldest have neither, as in a record that is
full. Each OLD is replaced by NEW in every text.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sidecar.outputs.record_store import series_lines

_AT_FULL_RATE: Final = 2


def main(source: Path, destination: Path, changes: Sequence[tuple[str, str]]) -> None:
    """Write DESTINATION anew."""
    destination.unlink(missing_ok=True)
    with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as old, sqlite3.connect(destination) as new:
        old.backup(new)
        new.execute("PRAGMA journal_mode=DELETE")
        ends = new.execute("SELECT n, wall_s, document, series FROM incidents ORDER BY n DESC").fetchall()
        for place, (number, _, document, series) in enumerate(ends):
            kept = _cut(json.loads(document), series, changes) if place < _AT_FULL_RATE else None
            new.execute("UPDATE incidents SET series=? WHERE n=?", (kept, number))
        began, ended = (ends[place][1] for place in (_AT_FULL_RATE + 1, _AT_FULL_RATE))
        new.execute("DELETE FROM samples WHERE wall_s NOT BETWEEN ? AND ?", (began, ended))
        for table, column in (
            ("incidents", "document"),
            ("incidents", "last_sample"),
            ("events", "text"),
            ("events", "fields"),
            ("samples", "row"),
            ("meta", "value"),
        ):
            for before, after in changes:
                new.execute(f"UPDATE {table} SET {column}=replace({column}, ?, ?)", (before, after))
        new.execute("DELETE FROM judge")
    with sqlite3.connect(destination) as new:
        new.execute("VACUUM")


def _cut(document: dict[str, Any], series: bytes, changes: Sequence[tuple[str, str]]) -> bytes:
    """Keep the rows of the life that ended."""
    rows = [(line, json.loads(line)) for line in series_lines(series)]
    pid = document["life"]["pid"]
    kept = [line for line, row in rows if pid in [process["pid"] for process in row["processes"]]]
    text = b"\n".join(kept).decode()
    for before, after in changes:
        text = text.replace(before, after)
    return zlib.compress(f"{text}\n".encode(), 9)


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        [(old, new) for old, _, new in (one.partition("=") for one in sys.argv[3:])],
    )
