"""`oomguard export`, registered by `sidecar.cli`. Imports are late: the daemon parses flags beside it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from guard.place import shared_directory

if TYPE_CHECKING:
    from typing import BinaryIO

    from sidecar.export.formats import Format
    from sidecar.record.reading import RecordReader, Span

HELP: Final = "the record as one table: CSV, JSON lines or Parquet"
_DESCRIPTION: Final = (
    "Writes samples, events and ends on one clock, a row each, with the last minute before every end at full rate. "
    "Columns and what unknown and unlimited look like: docs/export.md. Exit status: 0 written, 2 bad input or no room."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments and its action."""
    parser.description = _DESCRIPTION
    moment = "2026-11-30T13:05 (UTC), with an offset, seconds since 1970, or 15m, 2h, 7d before the last row"
    directory = shared_directory()
    parser.add_argument("--record", metavar="PATH", default=directory, help=f"the record, or its folder [{directory}]")
    parser.add_argument("--model", metavar="NAME", help="of this model alone")
    parser.add_argument("--since", metavar="TIME", help=moment)
    parser.add_argument("--until", metavar="TIME", help="likewise")
    parser.add_argument("--format", choices=("csv", "jsonl", "parquet"), help="by the name of the file, else csv")
    parser.add_argument("-o", "--output", metavar="FILE", default="-", help="where to [standard output]")
    parser.add_argument("--force", action="store_true", help="replace FILE where it is there")
    parser.add_argument("--redact", action="store_true", help="stand-ins for names, paths, ids and words of others")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    """Write the table; give the exit status."""
    from sidecar.record.commanding import exit_status

    return exit_status("export", lambda: _export(arguments))


def _export(arguments: argparse.Namespace) -> None:
    from sidecar.record.output import writing
    from sidecar.record.reading import open_record

    form = _format(arguments)
    with open_record(arguments.record) as reader:
        span = _span(reader, arguments)
        with writing(arguments.output, replace=arguments.force) as file:
            count = _write(reader, span, file, form=form, redact=arguments.redact)
        _say(arguments.output, count, reader.skipped)


def _format(arguments: argparse.Namespace) -> Format:
    from sidecar.export.formats import Format
    from sidecar.record.commanding import RequestError

    ending = arguments.output.rpartition(".")[2].lower()
    form = Format(
        arguments.format or ({"ndjson": "jsonl", "pq": "parquet"}.get(ending, ending) if ending in _ENDINGS else "csv")
    )
    if form is Format.PARQUET and arguments.output == "-" and sys.stdout.isatty():
        raise RequestError("parquet is not for a terminal; give a file with -o")
    return form


_ENDINGS: Final = frozenset(("csv", "jsonl", "ndjson", "parquet", "pq"))


def _span(reader: RecordReader, arguments: argparse.Namespace) -> Span:
    """Read which rows are asked for."""
    from sidecar.record.commanding import RequestError
    from sidecar.record.reading import Span
    from sidecar.record.times import moment

    models = reader.models()
    if arguments.model is not None and arguments.model not in models:
        known = f"it knows {', '.join(models)}" if models else "it holds no model yet"
        raise RequestError(f"the record knows no model {arguments.model!r}; {known}")
    last_wall_s = reader.last_wall_s() or 0.0
    bounds: list[float | None] = []
    for name in ("since", "until"):
        text = getattr(arguments, name)
        try:
            bounds.append(None if text is None else moment(text, last_wall_s))
        except ValueError as error:
            raise RequestError(f"--{name}: {error}") from error
    since, until = bounds
    if since is not None and until is not None and since > until:
        raise RequestError(f"--since {arguments.since} is after --until {arguments.until}")
    return Span(arguments.model, since, until)


def _write(reader: RecordReader, span: Span, file: BinaryIO, *, form: Format, redact: bool) -> int:
    """Look once for how many columns there must be, then write. Gives how many rows."""
    from sidecar.export.columns import Cells, Shape, columns
    from sidecar.export.formats import table
    from sidecar.export.lines import lines
    from sidecar.record.progress import bar
    from sidecar.record.redact import Redactor
    from sidecar.record.words import public_words

    redactor = Redactor(public_words()) if redact else None
    shape, rows, shown = Shape(), 0, file is not sys.stdout.buffer or not sys.stdout.isatty()
    with bar("counting", None, shown=shown) as progress:
        for line in lines(reader, span):
            shape = shape.widened(line.row)
            rows += 1
            progress(1)
            if redactor:
                redactor.learn(line.row)
    made = columns(shape)
    cells = Cells(made)
    into = table(form, file, made)
    with bar("writing", rows, shown=shown) as progress:
        for line in lines(reader, span):
            row = redactor.value(line.row) if redactor else line.row
            into.add(line.kind, cells.of(line.kind, row))
            progress(1)
    into.close()
    return rows


def _say(output: str, count: int, skipped: int) -> None:
    if output != "-" or not count:
        where = "" if output == "-" else f" in {output}"
        sys.stderr.write(f"oomguard: export: {count} rows{where}\n")
    if skipped:
        sys.stderr.write(
            f"oomguard: export: {skipped} rows of the record are not in the shape of this release, left out\n"
        )
