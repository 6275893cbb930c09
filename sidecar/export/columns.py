"""The columns of the flat table: a name, a type, and where in a row of the record the value stands. Pure.

Unknown is None in every column. A limit takes two: `..._bytes`, and `..._unlimited`, which is true where the kernel
enforces none, false beside a number, and None where the limit is unknown. Values that are not of the column's type (a
record is not trusted) are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from math import isfinite
from typing import Any, Final, TypeAlias

import msgspec

Cell: TypeAlias = bool | int | float | str | None
_INT64: Final = 1 << 63


class Type(Enum):
    """What a column holds."""

    TEXT = "text"
    INT = "integer"
    FLOAT = "number"
    BOOL = "true or false"
    UNLIMITED = "true or false "  # made from the same value as a limit's bytes
    JSON = "JSON text"


class Kind(StrEnum):
    """What a row is."""

    SAMPLE = "sample"
    EVENT = "event"
    INCIDENT = "incident"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `kinds`: the rows that have it. `paths`: where its value may stand, with dots; the first counts."""

    name: str
    type: Type
    kinds: frozenset[Kind]
    paths: tuple[str, ...]


class Cells:
    """Takes the cells of the columns out of rows."""

    def __init__(self, made: Sequence[Column]) -> None:
        self._count = len(made)
        self._wanted = {
            kind: [(at, _FITTING[one.type], one.paths) for at, one in enumerate(made) if kind in one.kinds]
            for kind in Kind
        }

    def of(self, kind: Kind, row: Mapping[str, Any]) -> list[Cell]:
        """Give the cells of a row as `lines` gives it, in the order of the columns."""
        flat: dict[str, Any] = {}
        _flatten(row, "", flat)
        cells: list[Cell] = [None] * self._count
        for place, fitting, paths in self._wanted[kind]:
            for path in paths:
                if path in flat:
                    cells[place] = fitting(flat[path])
                    break
        return cells


def _flatten(row: Mapping[str, Any], above: str, flat: dict[str, Any]) -> None:
    for key, value in row.items():
        name = above + key
        if value is not None:
            flat[name] = value
        if type(value) is dict:
            _flatten(value, f"{name}.", flat)
        elif key in _LISTS and type(value) is list:
            for place, item in enumerate(value[:_MOST]):
                _flatten(item if type(item) is dict else {}, f"{name}.{place}.", flat)


@dataclass(frozen=True, slots=True)
class Shape:
    """How many levels, cards and so on the rows have at most."""

    levels: int = 0
    gpus: int = 0

    def widened(self, row: Mapping[str, Any]) -> Shape:
        """Take one more row into account."""
        levels, gpus = (_length(row.get(name)) for name in _LISTS)
        if levels <= self.levels and gpus <= self.gpus:
            return self
        return Shape(min(_MOST, max(self.levels, levels)), min(_MOST, max(self.gpus, gpus)))


_MOST: Final = 64
"""Levels or cards with columns of their own; no tree is deeper and no node has more."""
_LISTS: Final = ("levels", "gpus")
_ALL: Final = frozenset(Kind)


def columns(shape: Shape) -> tuple[Column, ...]:
    """List the columns for rows of a shape, in their order."""
    return (
        *(_column(text, _ALL) for text in _COMMON),
        *(_column(text, frozenset({Kind.SAMPLE})) for text in _SAMPLE),
        *(_inner("level", "levels", place, text) for place in range(shape.levels) for text in _LEVEL),
        *(_inner("gpu", "gpus", place, text) for place in range(shape.gpus) for text in _GPU),
        *(_column(text, frozenset({Kind.EVENT})) for text in _EVENT),
        *(_column(text, frozenset({Kind.EVENT, Kind.INCIDENT})) for text in _STATUS),
        *(_column(text, frozenset({Kind.INCIDENT})) for text in _INCIDENT),
    )


def _length(value: object) -> int:
    return len(value) if isinstance(value, list) else 0


def _column(text: str, kinds: frozenset[Kind], name: str = "", above: str = "") -> Column:
    """Read one line of the tables below: name, type, path or paths with dots; without a path the name is it."""
    short, kind, *paths = text.split()
    return Column(name + short, _TYPES[kind], kinds, tuple(above + path for path in paths or [short]))


def _inner(name: str, key: str, place: int, text: str) -> Column:
    return _column(text, frozenset({Kind.SAMPLE}), f"{name}{place}_", f"{key}.{place}.")


def _int(value: object) -> Cell:
    return value if isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64 else None


def _unlimited(value: object) -> Cell:
    return True if value == "unlimited" else None if _int(value) is None else False


def _float(value: object) -> Cell:
    try:
        return (
            float(value) if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) else None
        )
    except OverflowError:  # an integer beyond every float
        return None


_FITTING: Final[Mapping[Type, Callable[[object], Cell]]] = {
    Type.TEXT: lambda value: value if isinstance(value, str) else None,
    Type.INT: _int,
    Type.FLOAT: _float,
    Type.BOOL: lambda value: value if isinstance(value, bool) else None,
    Type.UNLIMITED: _unlimited,
    Type.JSON: lambda value: msgspec.json.encode(value).decode(),
}
_TYPES: Final[Mapping[str, Type]] = {
    "text": Type.TEXT,
    "int": Type.INT,
    "float": Type.FLOAT,
    "bool": Type.BOOL,
    "unlimited": Type.UNLIMITED,
    "json": Type.JSON,
}

# Name, type, where it stands. v1 has its figures with everything below a level under total_ names.
_COMMON: Final = (
    *("at text", "wall_s float", "monotonic_s float", "boot_id text", "model text", "kind text", "ends int"),
)
_PSI: Final = tuple(
    f"{prefix}{name}_{part} int {path}{name}.{part}"
    for prefix, path, names in (
        ("", "", ("memory_psi", "io_psi")),
        ("node_", "node.", ("memory_psi", "io_psi", "cpu_psi")),
    )
    for name in names
    for part in ("some_us", "full_us")
)
_SAMPLE: Final = (
    *("state text", "live bool", "ready bool", "sight text", "hidden_ancestors bool"),
    *("probe_started_monotonic_s float probe.started_monotonic_s", "probe_latency_seconds float probe.latency_seconds"),
    *("probe_outcome text probe.outcome", "probe_in_flight_since_monotonic_s float"),
    *("main_pid int main.pid", "main_alive bool main.alive", "main_rss_anon_bytes int main.rss.anon"),
    *("main_rss_file_bytes int main.rss.file", "main_rss_shmem_bytes int main.rss.shmem"),
    *("main_swap_bytes int main.swap", "main_major_faults int main.majflt", "main_cpu_ticks int main.cpu_ticks"),
    *("alive_processes int alive.processes", "alive_rss_anon_bytes int alive.rss_anon"),
    *("alive_rss_file_bytes int alive.rss_file", "alive_rss_shmem_bytes int alive.rss_shmem"),
    *("operations int", "operation_kind text operation.kind", "operation_label text operation.label"),
    *("operation_file text operation.file", "operation_item text operation.item"),
    *("operation_bytes_done int operation.bytes_done", "operation_bytes_expected int operation.bytes_expected"),
    *("node_mem_total_bytes int node.MemTotal", "node_mem_available_bytes int node.MemAvailable"),
    *(
        "node_mem_free_bytes int node.MemFree",
        "node_swap_free_bytes int node.SwapFree",
        "node_oom_kill int node.oom_kill",
    ),
    *(text for text in _PSI if text.startswith("node_")),
)
_EVENTS: Final = ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")
_LEVEL: Final = (
    *("name text", "version int", "gone bool", "current_bytes int current", "peak_bytes int peak"),
    *("unreclaimable_bytes int unreclaimable", "max_bytes int max", "max_unlimited unlimited max"),
    *("high_bytes int high", "high_unlimited unlimited high", "swap_current_bytes int swap_current"),
    *("swap_max_bytes int swap_max", "swap_max_unlimited unlimited swap_max"),
    *(
        "memsw_current_bytes int memsw_current",
        "memsw_max_bytes int memsw_max",
        "memsw_max_unlimited unlimited memsw_max",
    ),
    *(f"events_{name} int events.{name}" for name in _EVENTS),
    *(f"events_local_{name} int events_local.{name}" for name in _EVENTS),
    *(
        "failcnt int",
        "oom_kill int",
        "anon_bytes int stat.total_rss stat.anon",
        "file_bytes int stat.total_cache stat.file",
    ),
    *("shmem_bytes int stat.total_shmem stat.shmem", "mapped_file_bytes int stat.total_mapped_file stat.file_mapped"),
    *("unevictable_bytes int stat.total_unevictable stat.unevictable", "dirty_bytes int stat.file_dirty"),
    *("kernel_bytes int stat.kernel", "major_faults int stat.total_pgmajfault stat.pgmajfault"),
    *("refaults_file int stat.workingset_refault_file", "refaults_anon int stat.workingset_refault_anon"),
    *("pgscan int stat.pgscan", "pgsteal int stat.pgsteal"),
    *(text for text in _PSI if not text.startswith("node_")),
)
_GPU: Final = (
    *("uuid text", "index int", "lost bool", "used_bytes int used", "free_bytes int free", "load_ratio float load"),
    *("xids json", "processes json", "slices json"),
)
_EVENT: Final = ("event_id int", "event_kind text", "event_text text", "event_fields json")
_STATUS: Final = tuple(
    f"{name} {kind} fields.{name} event_fields.{name}"
    for name, kind in (("exit_code", "int"), ("signal", "text"), ("restart_count", "int"))
)
_INCIDENT: Final = (
    *(
        "incident_id text id",
        "incident_main bool main",
        "incident_class text class",
        "incident_confidence text confidence",
    ),
    *("incident_level text level", "incident_summary text summary", "verdict_after_seconds float"),
    *("incident_fields json fields", "incident_evidence json evidence", "incident_missing json missing"),
)
