"""Real failures of host memory, each in a process of its own under a real limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.guard.hosts import Ended, only_box, run_host

GIB = 1 << 30

PRELUDE = "import guard; guard.install()\nimport resource\n"
LIMIT = "resource.setrlimit(resource.RLIMIT_AS, ({0} << 30, {0} << 30))\n"
FULL = (
    "import ctypes, os\n"
    "ctypes.CDLL(None).unshare(0x20000)\n"
    "assert os.system('mount --make-rprivate / && mount -t tmpfs -o size=1m tmpfs /dev/shm') == 0\n"
)
TORCH = pytest.mark.torch
LAB = pytest.mark.lab

CASES = [
    pytest.param(LIMIT.format(1) + "bytearray(5 << 30)", "memory_error", {"source": "python"}, id="python"),
    pytest.param(
        "import mmap\n" + LIMIT.format(1) + "mmap.mmap(-1, 5 << 30)", "memory_error", {"source": "system"}, id="system"
    ),
    pytest.param(
        "import numpy\n" + LIMIT.format(4) + "numpy.zeros(10 << 30, dtype='u1')",
        "memory_error",
        {"source": "numpy", "requested_bytes": 10 * GIB},
        id="numpy",
    ),
    pytest.param(
        "import torch\n" + LIMIT.format(8) + "torch.empty(20 << 30, dtype=torch.uint8)",
        "cpu_allocator",
        {"source": "torch", "requested_bytes": 20 * GIB, "errno": 12},
        id="torch",
        marks=TORCH,
    ),
    pytest.param(
        "import os, torch\nwith open('{folder}/w', 'wb') as file: file.truncate(20 << 30)\n"
        + LIMIT.format(8)
        + "torch.UntypedStorage.from_file('{folder}/w', shared=True, nbytes=20 << 30)",
        "mmap",
        {"source": "torch", "requested_bytes": 20 * GIB, "errno": 12, "file": "{folder}/w"},
        id="mmap",
        marks=TORCH,
    ),
    pytest.param(
        FULL + "import torch\ntorch.zeros(8 << 20, dtype=torch.uint8).share_memory_()",
        "shared_memory",
        {"source": "torch", "errno": 28},
        id="torch's shared memory",
        marks=[TORCH, LAB],
    ),
    pytest.param(
        FULL + "os.posix_fallocate(os.open('/dev/shm/x', os.O_RDWR | os.O_CREAT), 0, 8 << 20)",
        "exception",
        {},
        id="a request that would not have fitted into what is still free",
        marks=LAB,
    ),
    pytest.param(
        FULL + "file = open('/dev/shm/x', 'wb', 0)\nwhile True: file.write(bytes(4096))",
        "shared_memory",
        {"source": "system"},
        id="a write that filled it",
        marks=LAB,
    ),
    pytest.param(
        FULL
        + "import shutil\nwith open('{folder}/w', 'wb') as file: file.truncate(8 << 20)\n"
        + "shutil.copyfile('{folder}/w', '/dev/shm/w')",
        "shared_memory",
        {"source": "system"},
        id="a copy that filled it",
        marks=LAB,
    ),
]


@pytest.mark.parametrize(("code", "kind", "fields"), CASES)
def test_uncaught(code: str, kind: str, fields: dict[str, object], tmp_path: Path) -> None:
    """Box, standard error and termination log say what failed, how much was asked for, and what to do."""
    (tmp_path / "termination-log").touch()
    folder = str(tmp_path)
    ended = run_host(PRELUDE + code.replace("{folder}", folder), tmp_path)
    assert ended.returncode == 1
    expected = {
        name: value.replace("{folder}", folder) if isinstance(value, str) else value for name, value in fields.items()
    }
    (failure,) = only_box(tmp_path).failures
    assert (kind, True) == (failure.kind, failure.fatal)
    assert expected.items() <= failure.fields.items()
    (line,) = ended.lines
    record = json.loads(line)
    assert expected.items() <= record.items()
    assert ("do" in record) is (kind != "exception")
    assert (tmp_path / "termination-log").read_text().splitlines()[-1] == line
    assert _last_exception(ended).startswith(failure.exception)


def _last_exception(ended: Ended) -> str:
    """The line with which the interpreter ends its traceback."""
    return ended.own_err.strip().splitlines()[-1]


USED_UP = {
    "descriptors": """
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True: kept.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
guard.report(OSError("survived"))
from guard.fence import troubles
print(troubles.count)
raise MemoryError("the last one")
""",
    "memory": """
resource.setrlimit(resource.RLIMIT_AS, (192 << 20, 192 << 20))
size = 1 << 20
while size:
    try:
        while True: kept = (kept, bytes(size))
    except MemoryError:
        size = size * 3 // 4
while True: kept = (kept,)
""",
}


@pytest.mark.parametrize("what", USED_UP)
def test_nothing_left_to_import_with(what: str, tmp_path: Path) -> None:
    """A server that has used up its descriptors, or its memory to the last byte, ends with a record all the same."""
    ended = run_host(PRELUDE + "import os\nkept = []\n" + USED_UP[what], tmp_path)
    assert ended.returncode == 1
    assert ended.out == ("0\n" if what == "descriptors" else "")
    last = only_box(tmp_path).failures[-1]
    assert (last.kind, last.fatal, last.exception) == ("memory_error", True, "MemoryError")
    assert json.loads(ended.lines[-1])["fatal"] is True


@pytest.mark.parametrize("reader", ["that does not read", "that is gone"])
def test_standard_error_without_a_reader(reader: str, tmp_path: Path) -> None:
    """A server whose standard error is a full pipe, or one that nobody reads, neither hangs nor dies by our line."""
    code = (
        "import os, signal\nread, write = os.pipe()\nos.dup2(write, 2)\nos.close(write)\nos.set_blocking(2, False)\n"
        "try:\n    while True: os.write(2, bytes(4096))\nexcept BlockingIOError: os.set_blocking(2, True)\n"
        + ("os.close(read)\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\n" if reader == "that is gone" else "")
        + PRELUDE
        + "for _ in range(3): guard.report(MemoryError('survived'))\nprint('alive', guard.status().trouble_count)\n"
    )
    ended = run_host(code, tmp_path)
    assert (ended.returncode, ended.out) == (0, "alive 0\n")
    assert [failure.message for failure in only_box(tmp_path).failures] == ["survived"]
