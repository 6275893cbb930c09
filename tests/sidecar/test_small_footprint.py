"""What the daemon gives back to the kernel once it has started."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

_GIVES_BACK: Final = """
import hashlib, json, ssl
from pathlib import Path
from sidecar import footprint

def file_kib():
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return next(int(words[1]) for words in lines if words[0] == "RssFile:")

ssl.create_default_context()
before = file_kib()
footprint.give_back()
print(json.dumps([before, file_kib(), hashlib.sha256(b"still works").hexdigest()]))
"""

_CHANGED_CODE: Final = """
import ctypes, mmap, sys
from sidecar import footprint

PAGE, READ_EXECUTE = mmap.PAGESIZE, 5
with open(sys.argv[1], "r+b") as file:
    code = mmap.mmap(file.fileno(), 2 * PAGE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    code[:7] = b"patched"
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), PAGE * 2, READ_EXECUTE) == 0
footprint.give_back()
print(ctypes.string_at(address, 7).decode())
"""


def _said(script: str, *arguments: str) -> str:
    ran = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_code_of_the_start_is_given_back_and_runs_again_when_it_is_needed() -> None:
    """At least a MiB of libraries' code is no longer held, and the libraries still work."""
    before_kib, after_kib, digest = json.loads(_said(_GIVES_BACK))
    assert after_kib < before_kib - 1024
    assert digest == hashlib.sha256(b"still works").hexdigest()


def test_code_that_was_changed_in_memory_stays(tmp_path: Path) -> None:
    """A debugger's or a loader's private copy is not the file's any more, so it is not dropped."""
    file = tmp_path / "code"
    file.write_bytes(b"\0" * 8192)
    assert _said(_CHANGED_CODE, str(file)) == "patched"
