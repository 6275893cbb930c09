"""`oomguard explain [FILE ...|-]`, registered by `sidecar.cli`. Imports are late: the daemon parses flags beside it."""

from __future__ import annotations

import argparse
import sys
from typing import Final

HELP: Final = "say why something died, from logs, states and counters that you already have"
_DESCRIPTION: Final = (
    "Takes any mix of kernel logs, pod states and events, docker inspect, journals, logs of servers and cgroup files, "
    "plain or packed. Exit status: 0 classified or nothing ended, 1 an incident could not be decided, "
    "2 bad input."
)
_EXIT_BAD_INPUT: Final = 2
_WORTH_A_BAR: Final = 8 << 20
"""Bytes that take long enough to be watched."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments and its action."""
    parser.description = _DESCRIPTION
    parser.add_argument("files", nargs="*", metavar="FILE", help='files to read; "-" or none: standard input')
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    """Explain the files; give the exit status."""
    from sidecar.explain import show
    from sidecar.explain.opening import InputError
    from sidecar.explain.reading import explain, total_bytes
    from sidecar.record.output import EXIT_INTERRUPTED, OutputError, say
    from sidecar.record.progress import bar

    names = tuple(arguments.files) or ("-",)
    total = total_bytes(names)
    if "-" in names and sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write("oomguard: explain: paste what you have, then end it with Ctrl-D\n")
    try:
        with bar("reading", total, shown=total is None or total >= _WORTH_A_BAR) as progress:
            report = explain(names, progress)
        say(show.as_json(report) if arguments.json else show.as_text(report))
    except (InputError, OutputError) as exc:
        sys.stderr.write(f"oomguard: explain: {exc}\n")
        return _EXIT_BAD_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("oomguard: explain: interrupted\n")
        return EXIT_INTERRUPTED
    return show.exit_status(report)
