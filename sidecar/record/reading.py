"""Reading a record from outside: while a sidecar writes, from another user, on a read-only mount, after kill -9.

Rules
    * Nothing at the path is changed, and no file is made beside a living record: a -shm or -wal of another user would
      keep the sidecar from its own record.
    * A page of rows is one short transaction. A reader that held one for as long as a slow pipe takes would keep the
      sidecar's write-ahead log growing on a volume that may be memory. So rows that are deleted meanwhile are left out;
      rows that come after the first look at a table are as well, so that a second pass sees nothing new.
    * The content is not trusted: anyone in the pod may have written it. Rows that are not in our shape are left out and
      counted (`RecordReader.skipped`), and no size that is stored is believed.

How it is opened (https://www.sqlite.org/wal.html, "Read-Only Databases")
    * Without -wal no sidecar has it open, and all is in the main file: `immutable`, which takes no lock and needs no
      other file. A sidecar that starts during the reading may make it fail; then one tries again.
    * With -wal and -shm: `readonly_shm`. Where nobody holds the -shm (after kill -9), SQLite builds an index of its own
      in memory.
    * With -wal alone (a copy out of a pod): SQLite must make a -shm, so the folder must be writable.
"""

from __future__ import annotations

import sqlite3
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from urllib.parse import quote

import msgspec

from sidecar.outputs.record_file import APPLICATION_ID, SCHEMA_VERSION, is_damage
from sidecar.outputs.record_store import series_lines

RECORD_NAME: Final = "record.sqlite"
JsonObject: TypeAlias = Mapping[str, Any]

_CLOCKED: Final = ("samples", "events")
_TABLES: Final = frozenset((*_CLOCKED, "meta", "incidents", "counters"))
_COUNTED: Final = "SELECT model, sum(count) FROM counters GROUP BY model"
_PAGE: Final = 200
"""Rows of one transaction: about half a megabyte of samples."""
_INCIDENT: Final = "id, model, wall_s, document, last_sample, series"
_BUSY_SECONDS: Final = 10.0
_DAMAGED: Final = "damaged, or no record; try `sqlite3 FILE .recover`, or an older copy (record.sqlite.damaged-*)"
_READ_ONLY_SHM: Final = "mode=ro&readonly_shm=1"


class RecordError(Exception):
    """The record cannot be read. One line that says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """One tick of one model. `row` as in docs/record.md; an absent key was unknown."""

    model: str
    wall_s: float
    monotonic_s: float
    boot_id: str
    row: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One event. `fields` are JSON scalars."""

    id: int
    model: str
    wall_s: float
    monotonic_s: float
    boot_id: str
    kind: str
    text: str
    fields: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """One end. `document` as in docs/http.md; `last_sample` as `/incidents` gives it, None where there was none."""

    id: str
    model: str
    wall_s: float
    document: JsonObject
    last_sample: JsonObject | None
    packed_series: bytes | None

    @property
    def series(self) -> tuple[JsonObject, ...]:
        """The last minute at full rate, oldest first; unpacked at each call. Empty where there is none or damaged."""
        try:
            lines = series_lines(self.packed_series or b"")
        except zlib.error:
            return ()
        return tuple(row for line in lines if (row := _object(line)) is not None)


@dataclass(frozen=True, slots=True)
class Span:
    """Which rows: of one model or of all, within [since, until]; None bounds nothing."""

    model: str | None
    since_wall_s: float | None
    until_wall_s: float | None


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot of the node: when its first row was written, and what its monotonic clock is behind the wall clock."""

    id: str
    first_wall_s: float
    offset_s: float


class RecordReader:
    """An open record. Every method raises `RecordError` where the file fails while it is read."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.skipped = 0
        """Rows that were left out so far, as they are not in our shape."""
        self._connection = connection
        self._last: dict[str, int] = {}

    def __enter__(self) -> Self:
        """Give the reader itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the file; nothing can be read afterwards."""
        self._connection.close()

    def meta(self) -> Mapping[str, str]:
        """Facts about the file: `schema`, `boot_id` and `opened` of the last sidecar."""
        return {str(key): str(value) for key, value in self._rows("SELECT key, value FROM meta")}

    def models(self) -> tuple[str, ...]:
        """Every model with a sample, an event or an incident, by name. Events about the sidecar itself have none."""
        asked = " UNION ".join(f"SELECT model FROM {table}" for table in ("samples", "events", "incidents"))  # noqa: S608 - constants
        return tuple(sorted(str(name) for (name,) in self._rows(asked) if name))

    def count_samples(self) -> int:
        """Rows of samples, for a progress bar."""
        return int(self._rows("SELECT count(*) FROM samples")[0][0])

    def count_incidents(self) -> int:
        """Ends that the record holds."""
        return int(self._rows("SELECT count(*) FROM incidents")[0][0])

    def incidents(self, model: str | None = None, limit: int | None = None) -> tuple[IncidentRow, ...]:
        """Ends, newest first. `model` None: of all models."""
        found = []
        for row in self._rows(
            f"SELECT {_INCIDENT} FROM incidents WHERE ? IS NULL OR model = ? ORDER BY n DESC LIMIT ?",  # noqa: S608 - constants
            (model, model, -1 if limit is None else limit),
        ):
            if (incident := _incident(row)) is not None:
                found.append(incident)
            else:
                self.skipped += 1
        return tuple(found)

    def incident(self, prefix: str) -> IncidentRow:
        """Give the one incident whose id begins with `prefix`. Raises `RecordError` for none, and for several."""
        ids = [str(found) for (found,) in self._rows("SELECT id FROM incidents ORDER BY n DESC")]
        fitting = [found for found in ids if found == prefix] or [found for found in ids if found.startswith(prefix)]
        if len(fitting) != 1:
            raise RecordError(_which(prefix, fitting or ids, several=bool(fitting)))
        rows = self._rows(f"SELECT {_INCIDENT} FROM incidents WHERE id = ?", (fitting[0],))  # noqa: S608 - constants
        found = _incident(rows[0]) if rows else None
        if found is None:
            raise RecordError(f"incident {fitting[0]} in {self.path} is gone or not in the shape of this release")
        return found

    def samples(
        self, model: str | None = None, since_wall_s: float | None = None, until_wall_s: float | None = None
    ) -> Iterator[SampleRow]:
        """Samples within [since, until], oldest first as written. Few are in memory at once."""
        columns = "model, wall_s, monotonic_s, boot_id, row"
        for values in self._pages("samples", columns, Span(model, since_wall_s, until_wall_s)):
            row = _object(values[-1])
            if row is None or not _is_clock(*values[1:3]):
                self.skipped += 1
                continue
            name, wall_s, monotonic_s, boot_id = values[:-1]
            yield SampleRow(model=str(name), wall_s=wall_s, monotonic_s=monotonic_s, boot_id=str(boot_id), row=row)

    def each_event(
        self, model: str | None = None, since_wall_s: float | None = None, until_wall_s: float | None = None
    ) -> Iterator[EventRow]:
        """Events within [since, until], oldest first as written. Few are in memory at once."""
        columns = "id, model, wall_s, monotonic_s, boot_id, kind, text, fields"
        for values in self._pages("events", columns, Span(model, since_wall_s, until_wall_s)):
            number, name, wall_s, monotonic_s, boot_id, kind, text, stored = values
            fields = _object(stored)
            if fields is None or not isinstance(number, int) or not _is_clock(wall_s, monotonic_s):
                self.skipped += 1
                continue
            yield EventRow(
                id=number,
                model=str(name),
                wall_s=wall_s,
                monotonic_s=monotonic_s,
                boot_id=str(boot_id),
                kind=str(kind),
                text=str(text),
                fields=fields,
            )

    def events(
        self, model: str | None = None, since_wall_s: float | None = None, until_wall_s: float | None = None
    ) -> tuple[EventRow, ...]:
        """Events within [since, until], oldest first, all at once."""
        return tuple(self.each_event(model, since_wall_s, until_wall_s))

    def each_incident(self, model: str | None = None, *, series: bool = False) -> Iterator[IncidentRow]:
        """Ends, oldest first; their series only if asked for, one at a time. Few are in memory at once."""
        columns = f"id, model, wall_s, document, last_sample, {'series' if series else 'NULL'}"
        for values in self._pages("incidents", columns, Span(model, None, None), page=1 if series else _PAGE):
            if (incident := _incident(values)) is not None:
                yield incident
            else:
                self.skipped += 1

    def ends(self) -> Mapping[str, int]:
        """Ends of each model that were ever counted, also of incidents that the record no longer holds."""
        return {str(model): count for model, count in self._rows(_COUNTED) if isinstance(count, int)}

    def boots(self) -> tuple[Boot, ...]:
        """Every boot that an event or sample is of, in the order of writing: a wall clock may be wrong after a boot."""
        found: dict[str, Boot] = {}
        for table in ("events", "samples"):
            asked = (
                f"SELECT boot_id, wall_s, wall_s - monotonic_s, min(n) FROM {table} GROUP BY boot_id ORDER BY min(n)"  # noqa: S608 - constants
            )
            for name, *clocks, _ in self._rows(asked):
                if _is_clock(*clocks):
                    found.setdefault(str(name), Boot(str(name), *clocks))
        return tuple(found.values())

    def last_wall_s(self) -> float | None:
        """When the newest row of any kind was written; None in a record without rows."""
        asked = " UNION ALL ".join(f"SELECT max(wall_s) AS last FROM {table}" for table in (*_CLOCKED, "incidents"))  # noqa: S608 - constants
        last = self._rows(f"SELECT max(last) FROM ({asked})")[0][0]  # noqa: S608 - same
        return last if isinstance(last, float) else None

    def _pages(self, table: str, columns: str, span: Span, *, page: int = _PAGE) -> Iterator[tuple[Any, ...]]:
        """Rows in the order of writing, one short transaction a page."""
        asked = (
            f"SELECT n, {columns} FROM {table} WHERE n > ? AND n <= ? AND (? IS NULL OR model = ?) "  # noqa: S608 - constants
            "AND (? IS NULL OR wall_s >= ?) AND (? IS NULL OR wall_s <= ?) ORDER BY n LIMIT ?"
        )
        if table not in self._last:
            self._last[table] = self._rows(f"SELECT coalesce(max(n), 0) FROM {table}")[0][0]  # noqa: S608 - same
        wanted = (span.model, span.model, span.since_wall_s, span.since_wall_s, span.until_wall_s, span.until_wall_s)
        at = 0
        while rows := self._rows(asked, (at, self._last[table], *wanted, page)):
            for number, *values in rows:
                at = number
                yield tuple(values)

    def _rows(self, asked: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with _in_words(self.path):
            return self._connection.execute(asked, values).fetchall()


def open_record(path: str | Path) -> RecordReader:
    """Open a record to read it: the file, or the shared directory that holds `record.sqlite`.

    Raises:
        RecordError: missing, unreadable, damaged, foreign, or of another schema.
    """
    with _in_words(Path(path)):
        file = Path(path, RECORD_NAME) if Path(path).is_dir() else Path(path)
    with _in_words(file):
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            raise RecordError(f"{file} is not a regular file; give the record.sqlite of the shared directory")
        file.open("rb").close()  # says what is wrong better than SQLite does
        connection = _connect(file)
    try:
        with _in_words(file):
            _check(file, connection)
    except RecordError:
        connection.close()
        raise
    return RecordReader(file, connection)


def _connect(file: Path) -> sqlite3.Connection:
    log, index = (file.with_name(file.name + tail) for tail in ("-wal", "-shm"))
    how = "mode=ro&immutable=1"
    if log.exists():
        how = _READ_ONLY_SHM if index.exists() else "mode=ro"
    place = quote(bytes(file.absolute()))
    connection = sqlite3.connect(f"file:{place}?{how}", uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    return connection


def _check(file: Path, connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type='table'")}
    if application != APPLICATION_ID:
        what = (
            "is empty so far; wait for the sidecar" if not tables else "is not a record of oomguard; give another file"
        )
        raise RecordError(f"{file} {what}")
    if version != SCHEMA_VERSION:
        known = f"this release reads schema {SCHEMA_VERSION}"
        raise RecordError(f"{file} has schema {version}, {known}; use the release of oomguard that wrote it")
    if not tables >= _TABLES:
        raise RecordError(f"{file} lacks {', '.join(sorted(_TABLES - tables))}; it is damaged, give another file")


@contextmanager
def _in_words(file: Path) -> Iterator[None]:
    """Turn what the system and SQLite raise into one line that says what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise RecordError(f"there is no record at {file}; the sidecar keeps it in OOMGUARD_DIR") from error
    except PermissionError as error:
        raise RecordError(f"{file} may not be read by this user; run as the user of the sidecar, or copy it") from error
    except OSError as error:
        raise RecordError(
            f"{file}: {error.strerror or error}; give the record.sqlite of the shared directory"
        ) from error
    except sqlite3.Error as error:
        raise RecordError(f"{file}: {_said(error)}") from error
    except (UnicodeError, MemoryError) as error:  # SQLite quotes the bytes of a damaged schema; a size in it is wild
        raise RecordError(f"{file}: {_DAMAGED}") from error


def _said(error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if is_damage(error) or code == sqlite3.SQLITE_ERROR:  # what we ask never changes: a column or table is not there
        return _DAMAGED
    if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
        return f"{error}; copy record.sqlite and record.sqlite-wal into a folder that you may write, and read it there"
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return f"{error}; the sidecar is just starting, try again"
    return f"{error}; try again, or read a copy"


def _which(prefix: str, ids: list[str], *, several: bool) -> str:
    some = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")  # noqa: PLR2004 - fits a line
    if several:
        return f"{prefix!r} begins the ids of {len(ids)} incidents: {some}; give more letters"
    return f"no incident's id begins with {prefix!r}; there are {some}" if ids else "the record holds no incident yet"


def _incident(row: tuple[Any, ...]) -> IncidentRow | None:
    name, model, wall_s, document, last_sample, series = row
    read = _object(document)
    if read is None or not _is_clock(wall_s, 0.0):
        return None
    return IncidentRow(
        id=str(name),
        model=str(model),
        wall_s=wall_s,
        document=read,
        last_sample=None if last_sample is None else _object(last_sample),
        packed_series=series if isinstance(series, bytes) else None,
    )


def _is_clock(wall_s: object, monotonic_s: object) -> bool:
    return isinstance(wall_s, float) and isinstance(monotonic_s, float)


def _object(stored: object) -> JsonObject | None:
    """Decode a JSON object; None where it is anything else."""
    try:
        return msgspec.json.decode(stored, type=dict[str, Any]) if isinstance(stored, str | bytes) else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
