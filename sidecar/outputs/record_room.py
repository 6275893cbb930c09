"""Keeping the record within its size: what goes first, and how the file gives space back."""

from __future__ import annotations

import sqlite3
from typing import Final

from sidecar.outputs.record_file import LOG_BYTES
from sidecar.outputs.record_store import RecordLimits, transaction

_ORDER: Final = ("samples", "events", "incidents")  # what goes first
_CHUNK: Final = 100  # rows deleted at once: a small transaction fits the log that is already allocated
_PAGES: Final = 64  # given back at once, for the same reason


def used_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of pages in use in the main file."""
    return (_pragma(connection, "page_count") - _pragma(connection, "freelist_count")) * _pragma(
        connection, "page_size"
    )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def trim(connection: sqlite3.Connection, limits: RecordLimits, oldest_wall_s: float | None) -> int:
    """Bring the record within its limits; `oldest_wall_s` None: no age limit now. Gives how many rows went."""
    gone = 0
    if oldest_wall_s is not None:
        gone += _drop(connection, "samples", "wall_s < ?", (oldest_wall_s,))
    budget = limits.max_bytes - LOG_BYTES
    while used_bytes(connection) > budget:
        dropped = drop_oldest(connection)
        if not dropped:
            break
        gone += dropped
    free = _pragma(connection, "freelist_count") if gone else 0
    for _ in range(0, free, _PAGES):
        # Not execute(): sqlite3 steps a statement without columns once, and each step gives back a single page.
        connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")
    return gone


def drop_oldest(connection: sqlite3.Connection) -> int:
    """Delete some of the oldest rows of the least valuable kind there is. Gives how many went, 0 on an empty record."""
    for table in _ORDER:
        few = 1 if table == "incidents" else _CHUNK
        gone = _drop(connection, table, f"n IN (SELECT n FROM {table} ORDER BY n LIMIT ?)", (few,))  # noqa: S608 - constants
        if gone:
            return gone
    return 0


def _drop(connection: sqlite3.Connection, table: str, where: str, values: tuple[float, ...]) -> int:
    with transaction(connection):
        return connection.execute(f"DELETE FROM {table} WHERE {where}", values).rowcount  # noqa: S608 - constants
