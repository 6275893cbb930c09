"""What a recorded tree says, as JSON values: compared with its expected.json by the tests.

python -m tests.recorded.summary TREE...    prints it, for a new tree; check it by hand before it becomes expected
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from guard.kernel import memcg, meminfo, mountinfo, procfs, psi, vmstat
from guard.kernel.locate import locate
from guard.kernel.reader import Reader
from guard.kernel.values import LevelPath, MemoryLevel
from guard.model import Known, Limit, Reading, Unknown, Unlimited

_FIELDS: Final = (
    *("current_bytes", "peak_bytes", "max_bytes", "high_bytes", "swap_max_bytes", "memsw_limit_bytes"),
    *("failcnt", "kmem_current_bytes"),
)


def summary(root: Path) -> dict[str, Any]:
    """Everything that the parsers say of one tree, sizes in bytes; an unknown is {"unknown": reason}."""
    reader = Reader(str(root))
    chain = locate(reader)
    node = _parsed(reader, "/proc/meminfo", meminfo.parse)
    mounts = _parsed(reader, "/proc/self/mountinfo", mountinfo.parse)
    return {
        "chain": _plain(chain)
        if isinstance(chain, Unknown)
        else {
            "hidden_ancestors": chain.value.hidden_ancestors,
            "levels": [_level(reader, path, node, hidden=chain.value.hidden_ancestors) for path in chain.value.levels],
        },
        "node": {
            "mem_available_bytes": _item(node, "MemAvailable"),
            "oom_kill": _item(_parsed(reader, "/proc/vmstat", vmstat.parse), "oom_kill"),
            "memory_pressure_us": _stall(_parsed(reader, "/proc/pressure/memory", psi.parse)),
            "lxcfs": isinstance(mounts, Known) and mountinfo.is_lxcfs(mounts.value, "/proc/meminfo"),
        },
        "process": _process(reader),
    }


def read_level(reader: Reader, path: LevelPath) -> MemoryLevel:
    """Read the files of one level."""
    directories = {memcg.MEMORY: path.memory_dir, memcg.UNIFIED: path.unified_dir, memcg.CPU: path.cpu_dir}
    files = {
        file.name: reader.read(f"{directories[file.tree]}/{file.name}")
        for file in memcg.FILES[path.version]
        if directories[file.tree] is not None
    }
    return memcg.parse_level(path.version, files)


def _level(reader: Reader, path: LevelPath, node: Reading[Any], *, hidden: bool) -> dict[str, Any]:
    level = read_level(reader, path)
    swap_free = meminfo.swap_free_bytes(node)
    return {
        "name": path.name,
        "scope": path.scope.value,
        "version": path.version.value,
        **{name: _plain(getattr(level, name)) for name in _FIELDS},
        "refaults": _item(level.stat, "workingset_refault_file"),
        "oom_kills": _plain(memcg.oom_kills(level)),
        "oom_local": _item(level.events_local, "oom"),
        "memory_pressure_us": _stall(level.memory_pressure),
        "unreclaimable_bytes": _plain(memcg.unreclaimable_bytes(level)),
        "headroom_bytes": _plain(memcg.headroom_bytes(level, swap_free, hidden_ancestors=hidden)),
    }


def _process(reader: Reader) -> dict[str, Any]:
    status = _parsed(reader, "/proc/self/status", procfs.parse_status)
    stat = _parsed(reader, "/proc/self/stat", procfs.parse_stat)
    return {
        "rss_anon_bytes": status.value.rss_anon_bytes if isinstance(status, Known) else _plain(status),
        "majflt": stat.value.majflt if isinstance(stat, Known) else _plain(stat),
    }


def _parsed(reader: Reader, path: str, parse: Any) -> Any:  # noqa: ANN401 - any parser
    data = reader.read(path)
    return data if isinstance(data, Unknown) else parse(data.value, path)


def _item(table: Reading[Any], name: str) -> object:
    return _plain(table) if isinstance(table, Unknown) else table.value.get(name)


def _stall(pressure: Reading[Any]) -> object:
    return _plain(pressure) if isinstance(pressure, Unknown) else pressure.value.some.total_us


def _plain(reading: Reading[Any]) -> object:
    if isinstance(reading, Unknown):
        return {"unknown": reading.why.value}
    value: Limit = reading.value
    return value.value if isinstance(value, Unlimited) else value


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(json.dumps(summary(Path(name)), indent=1) + "\n")
