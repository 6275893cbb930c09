"""The record as a file: SQLite in WAL mode, opened so that nothing found at the path can stop the sidecar.

Contract
    * One writer: an flock on `PATH.lock`, which the kernel drops when its holder dies, by kill -9 as well.
    * Written by us and of this schema: `application_id` and `user_version`. Anything else at the path (damage, another
      schema, a foreign database) is moved aside under a name that says why, with its -wal, and a new record is begun.
      At most `_KEEP_ASIDE` such files stay.
    * What the path is matters before it is opened: a FIFO would block, a link could point anywhere.
    * synchronous=NORMAL: a commit survives kill -9 of the sidecar; a crash of the node may lose the last ones, never
      the file (https://www.sqlite.org/wal.html, "Performance Considerations").
"""

from __future__ import annotations

import fcntl
import os
import socket
import sqlite3
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sidecar.outputs.shape import iso

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x4F4F4D47  # "OOMG"
_KEEP_ASIDE: Final = 3
_WAL_PAGES: Final = 32  # automatic checkpoint at 128 KiB; the log is then written over from its start
LOG_BYTES: Final = 256 << 10  # a log beyond this is checkpointed by hand (record_room), and cut back to it
_TAILS: Final = ("-wal", "-shm", "-journal")
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE samples (
    n INTEGER PRIMARY KEY, boot_id TEXT NOT NULL, model TEXT NOT NULL,
    wall_s REAL NOT NULL, monotonic_s REAL NOT NULL, row TEXT NOT NULL
);
CREATE TABLE events (
    n INTEGER PRIMARY KEY, id INTEGER NOT NULL, boot_id TEXT NOT NULL, model TEXT NOT NULL,
    wall_s REAL NOT NULL, monotonic_s REAL NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, fields TEXT NOT NULL
);
CREATE TABLE incidents (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, model TEXT NOT NULL, wall_s REAL NOT NULL,
    document TEXT NOT NULL, last_sample TEXT, series BLOB
);
CREATE TABLE counters (
    model TEXT NOT NULL, cause TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (model, cause)
) WITHOUT ROWID;
CREATE TABLE judge (model TEXT PRIMARY KEY, boot_id TEXT NOT NULL, memory TEXT NOT NULL) WITHOUT ROWID;
"""
_EVIDENCE: Final = "CREATE TABLE IF NOT EXISTS evidence (id TEXT PRIMARY KEY, packed BLOB NOT NULL) WITHOUT ROWID"


class RecordUnavailableError(Exception):
    """The record cannot be kept now. The text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something happened to the record that people should know. `kind` is a stable snake_case name."""

    kind: str
    text: str


@dataclass(slots=True, kw_only=True)
class RecordFile:
    """An open record, held alone."""

    path: Path
    connection: sqlite3.Connection
    lock_fd: int
    identity: tuple[int, int]
    notices: tuple[Notice, ...]

    def still_there(self) -> bool:
        """Whether the path still names the open file; a directory may be emptied or mounted over at any time."""
        try:
            return _identity(self.path) == self.identity
        except OSError:
            return False

    def close(self) -> None:
        """Close the database, then give up the lock."""
        try:
            self.connection.close()
        finally:
            os.close(self.lock_fd)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that the file is not a sound database, rather than that it cannot be reached."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGE


def open_record(path: Path, wall_s: float, *, damaged: bool = False) -> RecordFile:
    """Open or begin the record. `damaged`: its content has already failed us, so move it aside unseen.

    Raises `RecordUnavailableError` where that is not possible now.
    """
    lock = _lock(path)
    try:
        connection, notices = _open_or_begin(path, wall_s, "damaged" if damaged else _strange(path))
        return RecordFile(path=path, connection=connection, lock_fd=lock, identity=_identity(path), notices=notices)
    except (OSError, sqlite3.Error) as error:
        os.close(lock)
        raise RecordUnavailableError(f"cannot open the record {path}: {error}") from error
    except RecordUnavailableError:
        os.close(lock)
        raise


def _open_or_begin(path: Path, wall_s: float, reason: str | None) -> tuple[sqlite3.Connection, tuple[Notice, ...]]:
    """Open what is there if it is ours and sound, else move it aside for `reason` and begin anew."""
    if reason is None:
        connection, reason = _try_open(path)
        if connection is not None:
            return connection, ()
    notice = _move_aside(path, reason or "damaged", wall_s)
    connection, reason = _try_open(path)
    if connection is None:
        raise RecordUnavailableError(f"cannot begin a new record at {path}: {reason}")
    return connection, (notice,)


def _lock(path: Path) -> int:
    """Take the lock beside the record, or say who holds it."""
    lock = path.with_name(path.name + ".lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(lock, flags, 0o644)
    except OSError as error:
        raise RecordUnavailableError(f"cannot open {lock}: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, 200, 0).decode("utf-8", "replace").strip() or "an unknown process"
        os.close(fd)
        text = f"another sidecar keeps {path} ({holder}); give each sidecar a directory of its own with OOMGUARD_DIR"
        raise RecordUnavailableError(text) from error
    with suppress(OSError):  # a full disk: the lock itself holds, only its label is missing
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return fd


def _strange(path: Path) -> str | None:
    """Why the thing at the path, or one that SQLite would open with it, must not be opened, or None."""
    for part in _parts(path):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(part.lstat().st_mode):
                return "not-a-file"
    return None


def _parts(path: Path) -> tuple[Path, ...]:
    """Give the record and the files that go with it."""
    return (path, *(path.with_name(path.name + tail) for tail in _TAILS))


def _try_open(path: Path) -> tuple[sqlite3.Connection | None, str | None]:
    """Open and check; a second value is why the file must be moved aside."""
    connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False, cached_statements=32)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")  # a bad byte costs a letter, not a start
    try:
        reason = _prepare(connection)
    except UnicodeDecodeError:  # SQLite quotes the bytes of a damaged schema in its message
        connection.close()
        return None, "damaged"
    except sqlite3.Error as error:
        connection.close()
        if is_damage(error):
            return None, "damaged"
        raise
    if reason is not None:
        connection.close()
        return None, reason
    return connection, None


def _prepare(connection: sqlite3.Connection) -> str | None:
    connection.execute("PRAGMA trusted_schema=OFF")  # the model's user may have written the file
    connection.execute("PRAGMA cell_size_check=ON")
    empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if not empty and application != APPLICATION_ID:
        return "foreign"
    if not empty and version != SCHEMA_VERSION:
        return f"schema-{version}"
    if not empty and connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        return "damaged"
    if empty:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint={_WAL_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
    connection.execute("PRAGMA cache_size=-256")  # KiB; rows are appended, so old pages are not needed again
    connection.execute("PRAGMA temp_store=MEMORY")
    if empty:
        _create(connection)
    connection.execute(_EVIDENCE)  # not there in a record of an earlier release
    return None


def _create(connection: sqlite3.Connection) -> None:
    """Make the tables in one transaction: a kill in the middle leaves an empty file, which is simply begun again."""
    identity = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION};"
    connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} {identity} COMMIT;")


def _move_aside(path: Path, reason: str, wall_s: float) -> Notice:
    stamp = iso(wall_s).replace(":", "").replace(".", "")
    aside = path.with_name(f"{path.name}.{reason}-{stamp}")
    for part, kept in zip(_parts(path), _parts(aside), strict=True):
        with suppress(FileNotFoundError):
            part.rename(kept)
    _thin_out(path)
    return Notice("record_moved_aside", f"{path} was {_WORDS.get(reason, reason)}; it is now {aside}, a new one began")


_WORDS: Final = {
    "damaged": "damaged",
    "foreign": "not a record of oomguard",
    "not-a-file": "not a regular file, or SQLite's own beside it was none",
}


def _thin_out(path: Path) -> None:
    """Remove the oldest files put aside: a crash loop must not fill the directory."""
    names = list(path.parent.glob(f"{path.name}.*-*Z"))
    names.sort(key=lambda one: one.lstat().st_mtime)
    for old in names[:-_KEEP_ASIDE]:
        for part in _parts(old):
            with suppress(OSError):  # not there; or a folder, or another user's: no reason to keep no record
                part.unlink()


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
