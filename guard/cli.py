"""The `oomguard` command.

`run`, `preflight`, `check`, `record-tree` and `site-dir` need the guard alone; the rest comes with the sidecar.

The sidecar's commands are passed on by name, so the guard does not import the sidecar until one of them is asked for.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING, Final

from guard import check, variables
from guard.place import DIRECTORY_VARIABLE, NAME_VARIABLE, RELEASE
from guard.runner import EXIT_USAGE, SITE, run
from guard.saying import complain, say

if TYPE_CHECKING:
    from collections.abc import Sequence

SIDECAR_COMMANDS: Final = {
    "sidecar": "the daemon beside the model server",
    "doctor": "what is set up, what is missing, and what to do about it",
    "settings": "check a settings file",
    "explain": "say why something died, from logs, states and counters that you already have",
    "report": "show one end as a page and as text: why, whose limit, and everything on one clock",
    "export": "the record as one table: CSV, JSON lines or Parquet",
    "bundle": "pack what a bug report needs, with names hidden; nothing is sent anywhere",
}


_PID_DIGITS: Final = 10
_NAME_HELP: Final = (
    "the model's name (default: OOMGUARD_NAME, else what the command runs). A model is a cgroup and a name: servers of "
    "one cgroup need names of their own, and workers inherit theirs"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; give its exit status. Wrong usage is one line and status 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in SIDECAR_COMMANDS:
        return _pass_on(words)
    if words and words[0] == "check":
        return check.main(words[1:])
    arguments = _parser(words).parse_args(words)
    if arguments.command is None:
        _parser(words).print_help(sys.stderr)
        return EXIT_USAGE
    status: int = arguments.act(arguments)
    return status


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oomguard",
        description="Keeps AI model servers alive under memory reclaim, and says with evidence why one died.",
    )
    parser.add_argument("--version", action="version", version=f"oomguard {RELEASE}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _add_run(commands.add_parser("run", help="run a server with the guard: oomguard run -- COMMAND"))
    preflight = commands.add_parser(
        "preflight", help="will a checkpoint fit here, and how could it be loaded for less?"
    )
    if words[:1] == ["preflight"]:  # what it needs is imported for nobody else
        from guard.fit.command import add_arguments

        add_arguments(preflight)
    tree = commands.add_parser("record-tree", help="record kernel files of a process, to attach to a bug report")
    tree.add_argument("directory", metavar="DIR", help="a folder that does not exist yet")
    tree.add_argument("--pid", type=_pid, default=None, help="of which process (default: this one)")
    tree.add_argument("--redact", action="store_true", help="replace container ids and pod uids")
    tree.set_defaults(act=_record_tree)
    site = commands.add_parser("site-dir", help="print the folder to put on PYTHONPATH (with OOMGUARD=on)")
    site.set_defaults(act=_site_dir)
    commands.add_parser(
        "check", help="ask the sidecar about the model, for a health check: exit 0 passed, 1 failed, 2 usage"
    )
    for name, text in SIDECAR_COMMANDS.items():
        commands.add_parser(name, help=text)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Starts a server, hands its kernel files to the sidecar, and activates the guard if it is Python. "
        "A Python that is started with -I, -E or -S does not look where the guard is: it runs without the guard, its "
        "kernel files and its end are seen all the same."
    )
    parser.usage = "oomguard run [--name NAME] [--dir DIR] -- COMMAND [ARGUMENT ...]"
    parser.add_argument("--name", help=_NAME_HELP)
    parser.add_argument("--dir", help="the directory shared with the sidecar (default: /run/oomguard)")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    parser.set_defaults(act=_run, parser=parser)


def _run(arguments: argparse.Namespace) -> int:
    words: list[str] = arguments.words
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        arguments.parser.error("there is no command to run")
    if warning := variables.warning(os.environ):
        complain(f"oomguard run: {warning}\n")
    if arguments.name:
        os.environ[NAME_VARIABLE] = arguments.name
    if arguments.dir:
        os.environ[DIRECTORY_VARIABLE] = arguments.dir
    return run(command)


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _PID_DIGITS and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no process id")
    return int(text)


def _record_tree(arguments: argparse.Namespace) -> int:
    from guard.kernel import tree
    from guard.kernel.reader import Reader

    command = " ".join(("oomguard", *sys.argv[1:]))
    try:
        done = tree.record(Reader(), arguments.directory, arguments.pid, command=command, redact=arguments.redact)
    except OSError as error:
        where = f"{error.filename or arguments.directory}: {error.strerror}" if error.strerror else error
        return _fail(f"record-tree: {where}")
    return _say(f"{done.files} files recorded, {len(done.errors)} could not be read; see {done.origin}\n")


def _site_dir(_arguments: argparse.Namespace) -> int:
    return _say(SITE + "\n")


def _pass_on(words: list[str]) -> int:
    try:
        module = importlib.import_module("sidecar.cli")
    except ModuleNotFoundError as error:
        return _fail(f"{words[0]}: {error.name} is missing; install the daemon: pip install 'oomguard[sidecar]'")
    status: int = module.main(words)
    return status


def _say(text: str) -> int:
    try:
        say(text)
    except OSError as error:
        return _fail(f"standard output: {error.strerror}")
    return 0


def _fail(text: str) -> int:
    complain(f"oomguard {text}\n")
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
