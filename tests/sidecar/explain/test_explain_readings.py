"""Readings of counters, in the shapes in which people paste them. Nothing ended in any of them."""

from __future__ import annotations

import pytest

from sidecar.explain.engine import InputParser
from sidecar.explain.incidents import incidents
from sidecar.explain.values import Field

_GIB = 1 << 30
_SHAPES: dict[str, tuple[str, dict[str, Field]]] = {
    "cat": (
        "$ cat /sys/fs/cgroup/memory.max\n536870912\n$ cat /sys/fs/cgroup/memory.current\n268435456",
        {"version": 2, "memory_max": 536870912, "memory_current": 268435456, "usage_ratio": 0.5},
    ),
    "no limit": (
        "==> memory.max <==\nmax\n\n==> memory.current <==\n4096",
        {"memory_max": None, "memory_current": 4096},
    ),
    "v1 files": (
        "memory.usage_in_bytes: 2097152000\nmemory.limit_in_bytes: 9223372036854771712\nmemory.failcnt: 0",
        {"version": 1, "memory_usage_in_bytes": 2097152000, "limit": None, "memory_failcnt": 0},
    ),
    "docker stats": (
        (
            "CONTAINER ID   NAME   CPU %     MEM USAGE / LIMIT   MEM %     NET I/O     BLOCK I/O   PIDS\n"
            "0a1b2c3d4e5f   llm    105.20%   12GiB / 16GiB       75.00%    1kB / 2kB   1GB / 0B    210"
        ),
        {"container": "0a1b2c3d4e5f", "usage_bytes": 12 * _GIB, "limit_bytes": 16 * _GIB, "mem_pct": 75.0},
    ),
    "docker's API": (
        '{"memory_stats":{"usage":500,"max_usage":600,"stats":{"cache":20,"rss":400,"total_inactive_file":3},"limit":900}}',
        {"version": 1, "usage": 500, "limit": 900, "cache": 20, "rss": 400, "total_inactive_file": 3},
    ),
    "systemctl show": ("MemoryCurrent=1024\nMemoryMax=infinity", {"MemoryCurrent": 1024, "MemoryMax": None}),
    "kubelet": ('  "usageBytes": 2048,\n  "workingSetBytes": 1024', {"usageBytes": 2048, "workingSetBytes": 1024}),
    "pressure of several": (
        (
            "memory: some avg10=50.00 avg60=20.00 avg300=3.00 total=1000\n"
            "io: full avg10=80.00 avg60=10.00 avg300=2.00 total=900"
        ),
        {
            "some": {"avg10": 50.0, "avg60": 20.0, "avg300": 3.0, "total": 1000},
            "io_full": {"avg10": 80.0, "avg60": 10.0, "avg300": 2.0, "total": 900},
        },
    ),
}


@pytest.mark.parametrize("shape", _SHAPES)
def test_a_shape_is_read(shape: str) -> None:
    """Every counter of the shape is read, a limit that is none is unknown, and no incident comes of it."""
    text, expected = _SHAPES[shape]
    parser = InputParser("file")
    for number, line in enumerate(text.split("\n"), 1):
        parser.feed(number, line)
    signs, note = parser.finish()
    assert expected == {name: note.fields[name] for name in expected}
    assert incidents(signs) == ()
