"""The commands of the sidecar: `sidecar` (the daemon) and those that people run beside it.

Imports are late: each needs its own part.

Plain argparse: the daemon parses its flags in the process that stays, and click would take 1.2 MiB of its 48 with it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

from sidecar.bundle import command as bundle_command
from sidecar.explain import command as explain_command
from sidecar.export import command as export_command
from sidecar.report import command as report_command
from sidecar.settings import Settings
from sidecar.settings_load import SettingsError, documentation, keys, load

EXIT_USAGE: Final = 2
_HELP: Final = ("-h", "--help")


class UsageError(Exception):
    """The command line is wrong. One line that says what is."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; give its exit status. Wrong usage and wrong settings are one line and status 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    _stand_in()
    try:
        arguments = _parser(documentation() if set(words) & set(_HELP) else {}).parse_args(words)
        act: Callable[[argparse.Namespace], int] = arguments.act
        return act(arguments)
    except (SettingsError, UsageError) as exc:
        sys.stderr.write(f"oomguard: {' '.join(str(exc).split())}\n")
        return EXIT_USAGE
    except ImportError as exc:
        package = (exc.name or "").partition(".")[0]
        if package in {"", "guard", "sidecar"}:
            raise
        sys.stderr.write(
            f"oomguard: the package {package} is missing or does not work here; pip install 'oomguard[sidecar]'\n"
        )
        return EXIT_USAGE
    except SystemExit as exc:  # argparse ends --help this way
        return exc.code if isinstance(exc.code, int) else EXIT_USAGE


def _stand_in() -> None:
    """Open the standard streams that we were started without.

    Else the next file to be opened gets the number of one, and the log of the daemon would be written into it. What is
    printed to a closed standard output has to fail, which /dev/full sees to.
    """
    for name, path, mode in (("stdin", os.devnull, "r"), ("stdout", "/dev/full", "w"), ("stderr", os.devnull, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(path, os.O_RDWR), mode))  # the lowest free number, in this order


def _parser(docs: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="oomguard",
        allow_abbrev=False,
        description="Watches a model server, answers its probes and explains every end.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    daemon = commands.add_parser("sidecar", allow_abbrev=False, help="the daemon beside the model server")
    _add_settings(daemon, docs)
    daemon.set_defaults(act=_sidecar)
    doctor = commands.add_parser(
        "doctor", allow_abbrev=False, help="what this place offers, what is missing, and what to do about it"
    )
    _add_settings(doctor, docs)
    doctor.add_argument("--json", action="store_true", help="one JSON document")
    doctor.set_defaults(act=_doctor)
    settings = commands.add_parser("settings", help="check a settings file")
    settings.add_argument("file", metavar="FILE")
    settings.set_defaults(act=_check_settings)
    explain_command.add_arguments(commands.add_parser("explain", help=explain_command.HELP))
    bundle_command.add_arguments(commands.add_parser("bundle", allow_abbrev=False, help=bundle_command.HELP))
    export_command.add_arguments(commands.add_parser("export", allow_abbrev=False, help=export_command.HELP))
    report_command.add_arguments(commands.add_parser("report", allow_abbrev=False, help=report_command.HELP))
    return parser


def _add_settings(parser: argparse.ArgumentParser, docs: Mapping[str, str]) -> None:
    """Give a command one flag for each setting."""
    parser.add_argument("--config", metavar="FILE", help="settings as TOML")
    for key in keys():
        text = docs.get(key.name, "").replace("%", "%%")
        default = "" if key.default is None else f" [{_shown(key.default)}]"
        parser.add_argument(key.flag, dest=key.name, metavar="VALUE", help=text + default)


def _shown(default: object) -> str:
    return ",".join(map(str, default)) or "none" if isinstance(default, tuple) else str(default)


def _settings(arguments: argparse.Namespace) -> Settings:
    given = {key.name: getattr(arguments, key.name) for key in keys()}
    flags = {name: value for name, value in given.items() if value is not None}
    return load(arguments.config, os.environ, flags)


def _sidecar(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    from sidecar import footprint

    footprint.keep_small()
    with footprint.without_system_tables():
        from sidecar.run import run
    return run(settings)


def _doctor(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    from sidecar import doctor

    findings = doctor.examine(settings)
    said = _say(doctor.as_json(findings) if arguments.json else doctor.as_text(findings))
    return said or doctor.exit_status(findings)


def _check_settings(arguments: argparse.Namespace) -> int:
    load(arguments.file, {}, {})
    return _say(f"{arguments.file}: good\n")


def _say(text: str) -> int:
    """Print; give 0, or the exit status of an output that takes nothing."""
    from sidecar.record.output import OutputError, say

    try:
        say(text)
    except OutputError as exc:
        sys.stderr.write(f"oomguard: {exc}\n")
        return EXIT_USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
