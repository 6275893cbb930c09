"""`oomguard bundle`, registered by `sidecar.cli`. Imports are late: the daemon parses flags beside it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.place import shared_directory

if TYPE_CHECKING:
    from sidecar.bundle.packing import Packed
    from sidecar.bundle.parts import Hiding, Part
    from sidecar.record.reading import RecordReader
    from sidecar.settings import Settings

HELP: Final = "pack what a bug report needs, with names hidden; nothing is sent anywhere"
_DESCRIPTION: Final = (
    "Packs ends, what led to them, events, settings, what doctor says, versions and kernel files into one tar.gz of at "
    "most 20 MiB. Names, paths, ids and words of others are hidden; environment and prompts are never in it. "
    "Exit status: 0 written, 2 bad input or no room."
)
_HIDDEN: Final = """\
Names of models, files, tensors, hosts, users and pods, paths, addresses, ids, and every word that does not stand in
oomguard's own sources are hidden. The same name has the same stand-in in all files. Figures, times, kernel files,
pids and the ids of incidents are as they were."""
_SHOWN: Final = """\
Names are NOT hidden (--no-redact): names of models, files, tensors and hosts, commands, paths, and cgroups with the ids
of pods and containers are in it as they were, and so are logs. Messages of exceptions keep figures and the words of
allocators alone. Tokens that look like tokens, users and queries of URLs, and values of variables are removed."""
_HEAD: Final = """What is in this bundle of oomguard, to attach to a bug report.

{hiding}
Never in it: environment variables, command lines in /proc, prompts and answers, contents of memory.
It was made on this machine and sent nowhere. Look into it before you give it away.
{notes}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments and its action."""
    parser.description = _DESCRIPTION
    parser.add_argument("--record", metavar="PATH", help="the record, or its folder [OOMGUARD_DIR, /run/oomguard]")
    parser.add_argument("--config", metavar="FILE", help="settings of the sidecar as TOML")
    parser.add_argument(
        "--log", metavar="FILE", action="append", default=[], help="a log of the sidecar; may be repeated"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help='where to, "-" is standard output [oomguard-bundle-TIME.tar.gz]'
    )
    parser.add_argument("--force", action="store_true", help="replace FILE where it is there")
    parser.add_argument("--no-redact", dest="redact", action="store_false", help="leave names as they are")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    """Write the bundle; give the exit status."""
    from sidecar.record.commanding import exit_status

    return exit_status("bundle", lambda: _bundle(arguments, time.time()))


def _bundle(arguments: argparse.Namespace, now: float) -> None:
    from sidecar.bundle.packing import Cover, pack
    from sidecar.record.output import STANDARD_OUTPUT, writing
    from sidecar.record.progress import bar

    for name in arguments.log:
        _check_log(name)
    settings, notes = _settings(arguments.config)
    output = arguments.output or time.strftime("oomguard-bundle-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime(now))
    with ExitStack() as stack:
        file = stack.enter_context(writing(output, replace=arguments.force))
        reader = _record(arguments.record, notes)
        if reader is not None:
            stack.enter_context(reader)
        hiding = _hiding(redact=arguments.redact)
        parts = _parts(reader, settings, arguments.log, hiding)
        told = "".join(f"Note: {hiding.text(note)}\n" for note in notes)
        head = _HEAD.format(hiding=_HIDDEN if arguments.redact else _SHOWN, notes=told)
        with bar("packing", len(parts)) as progress:
            listed = pack(parts, file, Cover(head, now), progress)
    _say(output, listed, redact=arguments.redact, to_pipe=output == STANDARD_OUTPUT)
    sys.stderr.writelines(f"oomguard: bundle: {note}\n" for note in notes)


def _check_log(name: str) -> None:
    from sidecar.record.commanding import RequestError

    if not Path(name).is_file() or not os.access(name, os.R_OK):
        raise RequestError(f"the log {name} is not a file that can be read")


def _settings(config: str | None) -> tuple[Settings | str, list[str]]:
    """Read the settings as the sidecar does. Where they are wrong, that is part of the report."""
    from sidecar.settings_load import SettingsError, load

    try:
        return load(config, os.environ, {}), []
    except SettingsError as error:
        text = " ".join(str(error).split())
        return text, [f"settings cannot be read: {text}"]


def _record(given: str | None, notes: list[str]) -> RecordReader | None:
    """Open the record; where none was named and there is none, the rest is still worth sending."""
    from sidecar.record.reading import RecordError, open_record

    try:
        return open_record(given or shared_directory())
    except RecordError as error:
        if given is not None:
            raise
        notes.append(f"without a record: {error}")
        return None


def _hiding(*, redact: bool) -> Hiding:
    from sidecar.record.redact import Redactor
    from sidecar.record.scrub import Scrubber
    from sidecar.record.words import public_words

    return Redactor(public_words()) if redact else Scrubber()


def _parts(reader: RecordReader | None, settings: Settings | str, logs: list[str], hiding: Hiding) -> list[Part]:
    """List everything, most important first: what comes last is left out where there is no room."""
    from sidecar.bundle import of_place, of_record

    recorded = () if reader is None else of_record.parts(reader, hiding)
    head, series = recorded[:2], recorded[2:]
    return [
        *head,
        *of_place.parts(settings, hiding),
        *of_place.kernel_files(reader, hiding),
        *series,
        *of_place.logs(logs, hiding),
    ]


def _say(output: str, listed: tuple[Packed, ...], *, redact: bool, to_pipe: bool) -> None:
    """Say what is in it, and that it stays here."""
    from sidecar.bundle.packing import table

    out = sys.stderr if to_pipe else sys.stdout
    size = "" if to_pipe else f", {-(-Path(output).stat().st_size // 1024)} KiB"
    out.write(f"{'the bundle' if to_pipe else output}{size}. It was sent nowhere; look into it before you attach it.\n")
    out.write(f"{_HIDDEN if redact else _SHOWN}\n\n{table(listed)}")
