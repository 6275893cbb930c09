"""From sources to `Settings`: defaults, then the TOML file, then OOMGUARD_* variables, then flags. Later wins.

The keys are the fields of the settings classes: `health.period_seconds` is `period_seconds` below `[health]` in the
file, OOMGUARD_HEALTH_PERIOD_SECONDS in the environment and --health-period-seconds as a flag: one table for all.
"""

from __future__ import annotations

import ast
import inspect
import math
import os
import re
import stat
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from sidecar.settings import Address, Between, ProbeTarget, Settings, SupervisedName

_N = TypeVar("_N", int, float)
_PREFIX: Final = "OOMGUARD_"
_FILE_LIMIT: Final = 1 << 20
_SHOWN_LETTERS: Final = 100
_MOST_SECONDS: Final = 366 * 86400.0
_MOST_TIMES: Final = 1_000_000
_LEAST_PERIOD_SECONDS: Final = 0.05
# Variables of the guard, which may share one environment block with us.
_FOREIGN: Final = re.compile(
    r"OOMGUARD_(PARENT|MAIN|FENCE|TERMINATION_LOG|LOOP|FAULTS|RELIEF|PREFLIGHT|PROGRESS|CUDA_SNAPSHOT|CUDA_HISTORY)"
)
# A Kubernetes Service called "oomguard" or "oomguard-metrics" puts these into every pod of its namespace (docker-style
# service links). NAME_PORT is one by its value alone: OOMGUARD_PORT=9475 is somebody's idea of a setting.
_LINK: Final = re.compile(
    r"OOMGUARD_(\w+_)?(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=.*|PORT_\d+_\w+=.*|PORT=(tcp|udp|sctp)://.*)", re.DOTALL
)


class SettingsError(Exception):
    """One line that names the key and what is allowed."""


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its dotted name, type and default."""

    name: str
    hint: Any
    default: object

    @property
    def variable(self) -> str:
        """Name in the environment."""
        return _PREFIX + self.name.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        """Name on the command line."""
        return "--" + self.name.replace(".", "-").replace("_", "-")


def keys() -> tuple[Key, ...]:
    """List every setting in the order of the classes."""
    return tuple(_keys(Settings(), ""))


def documentation() -> Mapping[str, str]:
    """Give the docstring of each key, in one line, as it stands beside the field."""
    docs: dict[str, str] = {}
    for group, prefix in ((Settings(), ""), *((getattr(Settings(), name), f"{name}.") for name in _groups())):
        tree = ast.parse(textwrap.dedent(inspect.getsource(type(group)))).body[0]
        assert isinstance(tree, ast.ClassDef), "the source of a class"
        for field, after in pairwise(tree.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                docs[prefix + field.target.id] = " ".join(str(after.value.value).split())
    return docs


def load(file: str | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> Settings:
    """Combine the sources; `flags` has dotted names. Raise `SettingsError` on the first bad key or value."""
    table = {key.name: key for key in keys()}
    given: dict[str, object] = {}
    for source, values in (
        (file or "", _from_file(file) if file else {}),
        ("environment", _from_environment(environ, table)),
        ("command line", flags),
    ):
        for name, raw in values.items():
            if name not in table:
                raise SettingsError(f"{source}: unknown setting {name!r}; {_known(name, table)}")
            given[name] = _value(f"{source}: {name}", table[name].hint, raw)
    settings = _apply(Settings(), given)
    if settings.tick.shortest_seconds > settings.tick.longest_seconds:
        raise SettingsError("tick.shortest_seconds must not be above tick.longest_seconds")
    if settings.health.period_seconds < _LEAST_PERIOD_SECONDS:
        raise SettingsError(
            f"health.period_seconds must be at least {_LEAST_PERIOD_SECONDS:g}, as a model is not flooded"
        )
    models = [target.model for target in settings.probe]
    for model in models:
        if models.count(model) > 1:
            raise SettingsError(f"probe: two targets for {'any model' if model is None else repr(model)}, give one")
    supervised = [one.model for one in settings.supervised.names]
    for model in supervised:
        if supervised.count(model) > 1:
            raise SettingsError(f"supervised.names: two for {'any model' if model is None else repr(model)}, give one")
    return settings


def _groups() -> tuple[str, ...]:
    return tuple(dict.fromkeys(key.name.partition(".")[0] for key in keys() if "." in key.name))


def _keys(group: object, prefix: str) -> Iterator[Key]:
    hints = get_type_hints(type(group), include_extras=True)
    for f in fields(group):  # type: ignore[arg-type]  # every caller passes a dataclass
        value = getattr(group, f.name)
        if is_dataclass(value) and not isinstance(value, Address):
            yield from _keys(value, f"{f.name}.")
        else:
            yield Key(prefix + f.name, hints[f.name], value)


def _apply(settings: Settings, given: Mapping[str, object]) -> Settings:
    groups: dict[str, dict[str, object]] = {}
    for name, value in given.items():
        group, _, leaf = name.rpartition(".")
        groups.setdefault(group, {})[leaf] = value
    top: dict[str, Any] = groups.pop("", {})
    top |= {group: replace(getattr(settings, group), **leaves) for group, leaves in groups.items()}
    return replace(settings, **top)


def _from_file(path: str) -> Mapping[str, object]:
    try:
        tree = tomllib.loads(_contents(path).decode())
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    except RecursionError as exc:
        raise SettingsError(f"{path}: not valid TOML: nested too deeply") from exc
    except ValueError as exc:  # of TOML, of UTF-8, of a number with thousands of digits
        raise SettingsError(f"{path}: not valid TOML: {exc}") from exc
    flat: dict[str, object] = {}
    for name, value in tree.items():
        flat |= {f"{name}.{leaf}": v for leaf, v in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _contents(path: str) -> bytes:
    """Read a file or a pipe to its end; a device has none."""
    kind = os.stat(path).st_mode  # noqa: PTH116 - Path adds nothing
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
        raise SettingsError(f"{path}: neither a file nor a pipe")
    with open(path, "rb") as file:  # noqa: PTH123 - same
        data = file.read(_FILE_LIMIT + 1)
    if len(data) > _FILE_LIMIT:
        raise SettingsError(f"{path}: larger than {_FILE_LIMIT >> 20} MiB, so no settings file")
    return data


def _from_environment(environ: Mapping[str, str], table: Mapping[str, Key]) -> Mapping[str, object]:
    """Give what is set. An empty text sets nothing: a Compose file's `${NAME:-}` gives one where nobody has spoken."""
    by_variable = {key.variable: name for name, key in table.items()}
    ours = {v: text for v, text in environ.items() if v.startswith(_PREFIX) and not _FOREIGN.fullmatch(v)}
    found = {v: text for v, text in ours.items() if not _LINK.fullmatch(f"{v}={text}")}
    for variable in found:
        if variable not in by_variable:
            raise SettingsError(f"environment: unknown variable {variable}; {_known(variable, by_variable)}")
    return {by_variable[variable]: text for variable, text in found.items() if text}


def _known(name: str, names: Iterable[str]) -> str:
    """Say what may have been meant."""
    from difflib import get_close_matches  # only needed for this one line

    close = get_close_matches(name, list(names))
    return (
        f"did you mean {' or '.join(close)}? `oomguard sidecar --help` lists all"
        if close
        else ("`oomguard sidecar --help` lists all that are known")
    )


def _value(where: str, hint: Any, raw: object) -> object:  # noqa: ANN401 - a type form has no type
    try:
        return _convert(hint, raw)
    except ValueError as exc:
        raise SettingsError(f"{where}: {_shown(raw)} is not {exc}") from exc


def _shown(raw: object) -> str:
    try:
        text = repr(raw)
    except ValueError:  # Python prints no number with thousands of digits
        text = "this number"
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."


def _convert(hint: Any, raw: object) -> object:  # noqa: ANN401 - a type form has no type
    """Turn text or a TOML value into the hinted type. The text of a `ValueError` says what is allowed."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        if raw is None or (isinstance(raw, str) and raw.strip().lower() in {"", "none"}):
            return None
        return _convert(next(a for a in arguments if a is not NoneType), raw)
    if origin is Annotated:
        return _ranged(arguments[1], (_integer if arguments[0] is int else _number)(raw))
    if origin is tuple:
        parts = [p.strip() for p in raw.split(",") if p.strip()] if isinstance(raw, str) else raw
        if not isinstance(parts, list):
            raise ValueError("a list, or text with commas")
        return tuple(_convert(arguments[0], part) for part in parts)
    return _SCALARS.get(hint, _enum(hint))(raw)


def _ranged(between: Between, number: float) -> float:
    if not between.low <= number <= between.high:
        raise ValueError(f"between {between.low:g} and {between.high:g}")
    return number


def _integer(raw: object) -> int:
    if isinstance(raw, str) and re.fullmatch(r"[+-]?\d{1,19}", raw.strip(), re.ASCII):
        return int(raw)
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    raise ValueError("a whole number")


def _number(raw: object) -> float:
    try:
        number = float(raw) if isinstance(raw, str | int | float) and not isinstance(raw, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("a number")
    return number


def _positive(number: _N, most: float) -> _N:
    if not 0 < number <= most:
        raise ValueError(f"above zero and at most {most:.0f}")
    return number


def _text(raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip() or not raw.isprintable():
        raise ValueError("text")
    return raw.strip()


def _enum(hint: Any) -> Callable[[object], object]:  # noqa: ANN401 - a type form has no type
    def parse(raw: object) -> object:
        assert issubclass(hint, StrEnum), f"no parser for {hint}"
        if isinstance(raw, str) and raw.strip().lower() in {str(member) for member in hint}:
            return hint(raw.strip().lower())
        raise ValueError("one of " + ", ".join(str(member) for member in hint))

    return parse


# The judge's rules are plain numbers, counts and seconds, above zero; ranged fields say so with `Between` instead.
_SCALARS: Final[Mapping[object, Callable[[object], object]]] = {
    str: _text,
    int: lambda raw: _positive(_integer(raw), _MOST_TIMES),
    float: lambda raw: _positive(_number(raw), _MOST_SECONDS),
    Address: lambda raw: Address.parse(_text(raw)),
    ProbeTarget: lambda raw: ProbeTarget.parse(_text(raw)),
    SupervisedName: lambda raw: SupervisedName.parse(_text(raw)),
}
