"""All ends of a record, a line each."""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.record.reading import IncidentRow
from sidecar.report import rows
from sidecar.report.clean import clean

_HEAD = ("incident", "ended", "model", "why")


def listing(found: Sequence[IncidentRow]) -> str:
    """Give the lines, newest first, under a head."""
    lines = [_HEAD, *(_line(one) for one in found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD) - 1)]
    return "".join(
        "  ".join((*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1])) + "\n"
        for line in lines
    )


def _line(row: IncidentRow) -> tuple[str, ...]:
    document = rows.document(clean(row.document))
    if document is None:
        return _line_of(clean(row.id)), "", _line_of(clean(row.model)), "not in the shape of this release"
    who = document.model if document.main else f"{document.model}, a child"
    return (
        document.id,
        document.at,
        _line_of(who),
        _line_of(f"{document.end_class}, {document.confidence.value}: {document.summary}"),
    )


def _line_of(text: str) -> str:
    """Give a text of several lines, as an exception may have, as one."""
    return " ".join(text.split())
