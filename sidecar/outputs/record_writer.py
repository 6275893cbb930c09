"""The recorder's thread at work: the open file, what still waits, and when to try again."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sidecar.clock import Clock
from sidecar.outputs import record_room, record_store
from sidecar.outputs.record_file import Notice, RecordFile, RecordUnavailableError, is_damage, open_record
from sidecar.outputs.record_store import Loaded, Pending, RecordLimits

_LONGEST_RETRY_SECONDS: Final = 30.0
_AGE_SECONDS: Final = 60.0  # between two looks for samples that are too old, and for room for the reserve
_JUMP_SECONDS: Final = 3600.0  # a wall clock this far off its course since the start is not believed


class Writer:
    """The thread's side: the open file, what still waits, and when to try again."""

    def __init__(self, path: Path, limits: RecordLimits, boot_id: str, clock: Clock) -> None:
        self._path = path
        self._limits = limits
        self._boot_id = boot_id
        self._clock = clock
        self._began = clock.now()
        self._file: RecordFile | None = None
        self._ends: Mapping[str, Mapping[str, int]] = {}
        self._damaged = False
        self._read = False  # what the record knows is read once, at the first time that it opens
        self._pause = limits.retry_seconds
        self._retry_at = 0.0
        self._age_at = 0.0
        self.pending = Pending()
        self.degraded: str | None = None
        self.notices: list[Notice] = []
        self.loaded: Loaded | None = None
        self.incidents: int | None = None
        """How many the record held at the last write."""

    def round(self, newer: Pending, *, force: bool) -> None:
        """Take over what came and try to write all; within a pause after a failure only what is forced is tried."""
        self.pending.absorb(newer)
        idle = not self.pending and self.degraded is None
        if idle or (time.monotonic() < self._retry_at and not force):
            return
        file = self.open()
        if file is None:
            return
        try:
            if not self.pending:  # to open a file proves nothing: on a full disk it opens and takes no row
                record_store.note_start(file.connection, self._boot_id, self._clock.now().wall_s)
            self._write(file)
            self._succeeded(file)
        except Exception as error:  # noqa: BLE001 - the thread must live; the error becomes the degraded state
            self._failed(error)

    def close(self) -> None:
        """Close the file; its log goes into the tables by that."""
        if self._file is not None:
            try:
                self._file.close()
            except (sqlite3.Error, OSError) as error:
                self.degraded = f"the record did not close: {error}"
            self._file = None

    def open(self) -> RecordFile | None:
        """Give the open file; open it first where it is not, or no longer the one at the path."""
        if self._file is not None and not self._file.still_there():
            self.notices.append(Notice("record_gone", f"{self._path} was removed or replaced; a new record begins"))
            self.close()
        if self._file is None:
            try:
                self._file = open_record(self._path, self._clock.now().wall_s, damaged=self._damaged)
                self.notices += self._file.notices
                self._damaged = False
                self._begin(self._file.connection)
            except Exception as error:  # noqa: BLE001 - whatever is in the file, the sidecar must go on
                self.close()
                if isinstance(error.__cause__, sqlite3.Error):  # it may be a full disk: even opening takes a little
                    record_room.give_up_reserve(self._path)
                self._failed(error)
        return self._file

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Read what the record knows; where this is a second file of this life, carry the counts over."""
        if not self._read:
            self.loaded = record_store.load(connection, self._boot_id)
            self._read = True
        record_store.keep_counts(connection, self._ends)
        try:
            record_store.note_start(connection, self._boot_id, self._clock.now().wall_s)
        except sqlite3.Error as error:
            if not record_room.is_full(error):
                raise
        self._note_counts(connection)

    def _note_counts(self, connection: sqlite3.Connection) -> None:
        self._ends = record_store.read_ends(connection)
        self.incidents = record_store.count_incidents(connection)

    def _write(self, file: RecordFile) -> None:
        """Write all that waits, part by part; where the disk is full, let old samples make room, and try again."""
        made_room = False
        while self.pending:
            part = self.pending.part()
            try:
                record_store.write(file.connection, part, self._boot_id)
                self.pending.remove(part)
                self._trim(file)
                made_room = False
            except sqlite3.Error as error:
                if made_room or not record_room.is_full(error):
                    raise
                record_room.make_room(file)
                made_room = True

    def _trim(self, file: RecordFile) -> None:
        now = time.monotonic()
        aged = now >= self._age_at
        if aged:
            self._age_at = now + _AGE_SECONDS
            record_room.take_reserve(self._path)
        record_room.trim(file, self._limits.max_bytes, self._oldest() if aged else None)

    def _succeeded(self, file: RecordFile) -> None:
        if self.degraded is not None:
            self.notices.append(Notice("record_recovered", f"{self._path} is written again"))
        self.degraded, self._pause, self._retry_at = None, self._limits.retry_seconds, 0.0
        self._note_counts(file.connection)

    def _oldest(self) -> float | None:
        """The oldest wall time to keep; None while the wall clock has jumped, so a jump deletes nothing."""
        now = self._clock.now()
        drift = (now.wall_s - self._began.wall_s) - (now.monotonic_s - self._began.monotonic_s)
        return None if abs(drift) > _JUMP_SECONDS else now.wall_s - self._limits.keep_seconds

    def _failed(self, error: Exception) -> None:
        """Close the file, to be opened again after a pause; a damaged one is replaced at once.

        On a full disk it stays open, as opening it again would take space.
        """
        damaged = isinstance(error, sqlite3.Error) and is_damage(error)
        if not record_room.is_full(error):
            self.close()
        self._later(str(error) if isinstance(error, RecordUnavailableError) else f"the record is not written: {error}")
        if damaged:
            self._damaged, self._retry_at = True, 0.0

    def _later(self, reason: str) -> None:
        if self.degraded is None:
            self.notices.append(Notice("record_degraded", reason))
        self.degraded = reason
        now = time.monotonic()
        if now >= self._retry_at:  # a forced attempt within the pause does not lengthen it
            self._retry_at = now + self._pause
            self._pause = min(self._pause * 2, _LONGEST_RETRY_SECONDS)
