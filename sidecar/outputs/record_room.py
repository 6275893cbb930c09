"""Room for the record: its own limit, and a disk that others have filled.

Theory, for the full disk
    * In WAL mode a commit grows the log, and only a checkpoint grows the tables. SQLite ignores a failed automatic
      checkpoint, so on a full disk the log would take the last bytes and then nothing works, deleting included. So a
      log beyond its bound is checkpointed by hand here, which shows the error while the log is still small.
    * A reserve of `RESERVE_BYTES` lies beside the record. When the disk is full it is given up: the checkpoint goes
      through with it, old samples are deleted, the tables shrink, and the reserve is taken again from what that freed.
      Where nothing old is left to delete, the reserve is what the next incidents are written to.
    * Only samples and events make room for a full disk. Incidents go by the size limit alone, and last.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from sidecar.outputs.record_file import LOG_BYTES, RecordFile
from sidecar.outputs.record_store import transaction

RESERVE_BYTES: Final = LOG_BYTES  # the tables grow by no more than the log holds
_CHUNK: Final = 50  # rows deleted at once: a small transaction fits the log that is already there
_PAGES: Final = 32  # given back at once, for the same reason


def is_full(error: Exception) -> bool:
    """Whether an error says that the disk, or a quota, is full."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def used_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of pages in use in the main file."""
    pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    return pages * _pragma(connection, "page_size")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def trim(file: RecordFile, max_bytes: int, oldest_wall_s: float | None) -> None:
    """Bring the record within its limits. `oldest_wall_s`: samples before it go; None: none goes for its age."""
    connection, budget = file.connection, max_bytes - LOG_BYTES - RESERVE_BYTES
    gone = 0
    if oldest_wall_s is not None:
        gone = _drop(connection, "samples", "wall_s < ?", oldest_wall_s)
    while used_bytes(connection) > budget:
        dropped = _drop_oldest(connection, ("samples", "events", "incidents"))
        if not dropped:
            break
        gone += dropped
    if gone:
        _shrink(connection)
    if _log_bytes(file.path) > LOG_BYTES:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def make_room(file: RecordFile) -> None:
    """On a full disk: give up the reserve, delete old samples for twice its size, and take it again."""
    connection = file.connection
    give_up_reserve(file.path)
    _restart_log(connection)
    enough = used_bytes(connection) - 2 * RESERVE_BYTES
    while used_bytes(connection) > enough and _drop_oldest(connection, ("samples", "events")):
        pass
    _shrink(connection)
    _restart_log(connection)
    if used_bytes(connection) <= enough:
        take_reserve(file.path)


def give_up_reserve(path: Path) -> None:
    """Give the bytes set aside back to the disk."""
    with suppress(OSError):
        _reserve_path(path).unlink()


def take_reserve(path: Path) -> None:
    """Set bytes aside for a full disk, where there are so many. Without them the record still works, until then."""
    reserve = _reserve_path(path)
    with suppress(OSError):
        fd = os.open(reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        except OSError:
            reserve.unlink(missing_ok=True)
        finally:
            os.close(fd)


def _reserve_path(path: Path) -> Path:
    return path.with_name(path.name + ".reserve")


def _log_bytes(path: Path) -> int:
    try:
        return os.path.getsize(f"{path}-wal")  # noqa: PTH202 - once a second; see guard.kernel.reader for pathlib
    except OSError:
        return 0


def _restart_log(connection: sqlite3.Connection) -> None:
    """Move the log into the tables, so that the next transaction writes over it from its start."""
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()


def _shrink(connection: sqlite3.Connection) -> None:
    """Give free pages back, in small transactions."""
    for _ in range(0, _pragma(connection, "freelist_count"), _PAGES):
        # Not execute(): sqlite3 steps a statement without columns once, and each step gives back a single page.
        connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")


def _drop_oldest(connection: sqlite3.Connection, tables: tuple[str, ...]) -> int:
    """Delete some of the oldest rows of the first table that has any. Gives how many went."""
    for table in tables:
        few = 1 if table == "incidents" else _CHUNK
        gone = _drop(connection, table, f"n IN (SELECT n FROM {table} ORDER BY n LIMIT ?)", few)  # noqa: S608 - constants
        if gone:
            return gone
    return 0


def _drop(connection: sqlite3.Connection, table: str, where: str, value: float) -> int:
    with transaction(connection):
        return connection.execute(f"DELETE FROM {table} WHERE {where}", (value,)).rowcount  # noqa: S608 - constants
