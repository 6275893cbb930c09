"""The commands of the sidecar: `sidecar` (the daemon), `doctor`, `check`. Imports are late: each needs its own part."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from sidecar.settings import Settings
from sidecar.settings_load import SettingsError, documentation, keys, load

EXIT_USAGE: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; give its exit status. Wrong usage and wrong settings are one line and status 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _group(with_help="--help" in words).main(words, prog_name="oomguard", standalone_mode=False)
    except SettingsError as exc:
        return _fail(str(exc))
    except click.ClickException as exc:
        return _fail(exc.format_message())
    except (click.Abort, KeyboardInterrupt):
        return 130
    return status if isinstance(status, int) else 0


def _group(*, with_help: bool) -> click.Group:
    group = click.Group("oomguard", help="Watches a model server, answers its probes and explains every end.")
    docs = documentation() if with_help else {}
    group.add_command(_command("sidecar", _sidecar, docs, "The daemon beside the model server."))
    doctor = _command("doctor", _doctor, docs, "Say what this place offers, what is missing, and what to do about it.")
    doctor.params.append(click.Option(["--json", "as_json"], is_flag=True, help="One JSON document."))
    group.add_command(doctor)
    check = click.Command("check", callback=_check, help="Check a settings file.")
    check.params.append(click.Argument(["file"]))
    group.add_command(check)
    return group


def _command(name: str, act: Callable[..., int], docs: Any, text: str) -> click.Command:  # noqa: ANN401 - a mapping
    """Make a command that takes the settings as flags; one flag for each key."""
    command = click.Command(name, callback=act, help=text)
    command.params.append(click.Option(["--config"], metavar="FILE", help="Settings as TOML."))
    for key in keys():
        parameter = key.name.replace(".", "__")
        default = "" if key.default is None else f" [{_shown(key.default)}]"
        text = docs.get(key.name, "") + default
        command.params.append(click.Option([key.flag, parameter], metavar="VALUE", help=text))
    return command


def _shown(default: object) -> str:
    return ",".join(map(str, default)) or "none" if isinstance(default, tuple) else str(default)


def _settings(config: str | None, flags: dict[str, str | None]) -> Settings:
    given = {name.replace("__", "."): value for name, value in flags.items() if value is not None}
    return load(config, os.environ, given)


def _sidecar(config: str | None, **flags: str | None) -> int:
    settings = _settings(config, flags)
    from sidecar import footprint

    footprint.keep_small()
    with footprint.without_certificates():
        from sidecar.run import run
    return run(settings)


def _doctor(config: str | None, *, as_json: bool, **flags: str | None) -> int:
    settings = _settings(config, flags)
    from sidecar import doctor

    findings = doctor.examine(settings)
    sys.stdout.write(doctor.as_json(findings) if as_json else doctor.as_text(findings))
    return doctor.exit_status(findings)


def _check(file: str) -> int:
    load(file, {}, {})
    sys.stdout.write(f"{file}: good\n")
    return 0


def _fail(text: str) -> int:
    sys.stderr.write(f"oomguard: {' '.join(text.split())}\n")
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
