"""The table as a file: CSV, JSON lines or Parquet. Rows are written as they come."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, BinaryIO, Final, Protocol

import msgspec

from sidecar.export.columns import Cell, Column, Kind, Type
from sidecar.record.commanding import RequestError

_GROUP: Final = 2000
"""Rows of a Parquet row group, the most that is held in memory: about 10 MiB."""


class Format(StrEnum):
    """What the file is."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


class FormatError(RequestError):
    """This format is not to be had here. One line that says what to do."""


class Table(Protocol):
    """Takes rows; complete only after `close`."""

    def add(self, kind: Kind, cells: Sequence[Cell]) -> None:
        """Write a row; `cells` in the order of the columns."""
        ...

    def close(self) -> None:
        """Write what is held back."""
        ...


def table(form: Format, file: BinaryIO, columns: Sequence[Column]) -> Table:
    """Begin a table in a file. Raises `FormatError` where a package is missing."""
    if form is Format.PARQUET:
        return _Parquet(file, columns)
    return _Csv(file, columns) if form is Format.CSV else _JsonLines(file, columns)


class _Csv:
    """RFC 4180 with a header and newlines of Unix; unknown is an empty cell."""

    def __init__(self, file: BinaryIO, columns: Sequence[Column]) -> None:
        self._file = file
        self._writer = csv.writer(self, lineterminator="\n")
        self._writer.writerow([column.name for column in columns])

    def add(self, kind: Kind, cells: Sequence[Cell]) -> None:  # noqa: ARG002 - the protocol
        self._writer.writerow([str(cell).lower() if isinstance(cell, bool) else cell for cell in cells])

    def write(self, text: str) -> None:
        """Take a line of the csv module."""
        self._file.write(text.encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        self._file.flush()


class _JsonLines:
    """One object a line, with the columns of its kind of row; unknown is null."""

    def __init__(self, file: BinaryIO, columns: Sequence[Column]) -> None:
        self._file = file
        self._names = {
            kind: [(place, column.name) for place, column in enumerate(columns) if kind in column.kinds]
            for kind in Kind
        }

    def add(self, kind: Kind, cells: Sequence[Cell]) -> None:
        row = {name: cells[place] for place, name in self._names[kind]}
        self._file.write(msgspec.json.encode(row) + b"\n")

    def close(self) -> None:
        self._file.flush()


class _Parquet:
    """Typed columns, zstd; unknown is null."""

    def __init__(self, file: BinaryIO, columns: Sequence[Column]) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise FormatError("parquet needs pyarrow: pip install 'oomguard[parquet]'") from error
        types = {Type.INT: pa.int64(), Type.FLOAT: pa.float64(), Type.BOOL: pa.bool_(), Type.UNLIMITED: pa.bool_()}
        self._schema = pa.schema([(column.name, types.get(column.type, pa.string())) for column in columns])
        self._batch = pa.RecordBatch
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[Sequence[Cell]] = []

    def add(self, kind: Kind, cells: Sequence[Cell]) -> None:  # noqa: ARG002 - the protocol
        self._rows.append(cells)
        if len(self._rows) >= _GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            held: list[list[Any]] = [list(cells) for cells in zip(*self._rows, strict=True)]
            self._writer.write_batch(
                self._batch.from_pydict(dict(zip(self._schema.names, held, strict=True)), self._schema)
            )
            self._rows = []
