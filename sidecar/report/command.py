"""`oomguard report [INCIDENT]`, registered by `sidecar.cli`. Imports are late: the daemon parses flags beside it."""

from __future__ import annotations

import argparse
import math
import re
import sys
from typing import TYPE_CHECKING, Final

from guard.place import RELEASE, shared_directory

if TYPE_CHECKING:
    from sidecar.record.reading import RecordReader
    from sidecar.report.gather import Wanted
    from sidecar.report.story import Story

HELP: Final = "show one end as a page and as text: why, whose limit, and everything on one clock"
_DESCRIPTION: Final = (
    "Reads the record that the sidecar keeps, writes one HTML file that needs nothing else, and prints the same as "
    "text. Exit status: 0 done, 2 there is no such record or end, or it cannot be written."
)
_LAST_SECONDS: Final = 120.0
_NO_TERMINAL_COLUMNS: Final = 100
_WIDEST_COLUMNS: Final = 140


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments and its action."""
    parser.description = _DESCRIPTION
    parser.add_argument(
        "incident",
        nargs="?",
        metavar="INCIDENT",
        help="the id of an end or how it begins (default: the newest end of a model's main process)",
    )
    parser.add_argument("--model", metavar="NAME", help="the newest end of this model")
    parser.add_argument("--list", action="store_true", help="list the ends that the record holds, newest first")
    parser.add_argument(
        "--record", metavar="PATH", help="record.sqlite, or the folder that holds it (default: OOMGUARD_DIR)"
    )
    parser.add_argument(
        "--last",
        metavar="SECONDS",
        type=_seconds,
        default=_LAST_SECONDS,
        help=f"how much before the end the timeline shows, at most since the start of that life [{_LAST_SECONDS:.0f}]",
    )
    parser.add_argument(
        "--redact", action="store_true", help="stand-ins for names, paths, commands and hosts; figures stay"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help='where the page goes; "-": standard output, without the text [oomguard-report-INCIDENT.html]',
    )
    parser.add_argument("--force", action="store_true", help="replace FILE where it exists")
    parser.add_argument("--text", action="store_true", help="the text alone, no file")
    parser.set_defaults(act=act)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 on")
    return seconds


def act(arguments: argparse.Namespace) -> int:
    """Show the end; give the exit status."""
    from sidecar.record.commanding import exit_status

    return exit_status("report", lambda: _report(arguments))


def _report(arguments: argparse.Namespace) -> None:
    from sidecar.record.commanding import RequestError
    from sidecar.record.reading import open_record
    from sidecar.report.gather import Wanted

    if arguments.incident is not None and (arguments.list or arguments.model is not None):
        raise RequestError("INCIDENT names one end already: leave out --list and --model")
    wanted = Wanted(incident=arguments.incident, model=arguments.model, seconds=arguments.last, redact=arguments.redact)
    with open_record(arguments.record or shared_directory()) as record:
        if arguments.list:
            _list(record, wanted)
        else:
            _show(record, wanted, arguments)


def _show(record: RecordReader, wanted: Wanted, arguments: argparse.Namespace) -> None:
    from sidecar.record.output import STANDARD_OUTPUT, say, writing
    from sidecar.report.gather import story
    from sidecar.report.page import page

    told = story(record, wanted)
    if arguments.text:
        say(_text(told))
        return
    name = arguments.output or f"oomguard-report-{re.sub('[^A-Za-z0-9_-]', '_', told.id)}.html"
    html = page(told, _colophon(record, wanted))
    with writing(name, replace=arguments.force) as file:
        file.write(html.encode())
    if name != STANDARD_OUTPUT:
        say(f"{_text(told)}\nThe page: {name}\n")


def _colophon(record: RecordReader, wanted: Wanted) -> str:
    names = " Names are stand-ins; figures are as recorded." if wanted.redact else ""
    left_out = f" {record.skipped} rows could not be read and were left out." if record.skipped else ""
    return f"Made by oomguard {RELEASE} from the sidecar's record.{names}{left_out} This page loads and sends nothing."


def _text(told: Story) -> str:
    import shutil

    from sidecar.report.terminal import text

    terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns if terminal else _NO_TERMINAL_COLUMNS
    unicode = "utf" in (sys.stdout.encoding or "").lower()
    return text(told, columns=min(columns, _WIDEST_COLUMNS), colours=terminal, unicode=unicode)


def _list(record: RecordReader, wanted: Wanted) -> None:
    from sidecar.record.output import say
    from sidecar.report.gather import ends
    from sidecar.report.listing import listing

    say(listing(ends(record, wanted.model)))
