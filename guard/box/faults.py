"""Reading the trace of a native fault, which the interpreter's faulthandler wrote beside a black box. Pure and total.

The text is that of CPython 3.11 to 3.14 (Python/traceback.c, Modules/faulthandler.c): a line with the error, then the
stack of every thread, innermost frame first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from guard.model import Known, Reading, Unknown, Why

LIMIT_BYTES: Final = 1 << 20
"""More than faulthandler writes: 100 threads of 100 frames."""

_FRAMES: Final = 16
_TEXT_ROOM: Final = 200
_FAULT: Final = re.compile(r"^Fatal Python error: (.{1,200})$", re.MULTILINE)
_CURRENT: Final = re.compile(r"^Current thread 0x[0-9a-f]+.*$", re.MULTILINE)
_FRAME: Final = re.compile(r'^  File "(.{0,1000})", line (\d+|\?\?\?) in (.{0,500})$')
_SIGNALS: Final = {
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
_DO: Final = {
    "SIGBUS": "a mapped file could not be filled, most often /dev/shm: raise it (docker --shm-size, compose shm_size, "
    "in Kubernetes an emptyDir with medium: Memory on /dev/shm); else a weights file was cut while it was mapped",
    "SIGABRT": "native code gave up, after std::bad_alloc for want of memory: see the last lines of its log",
}


@dataclass(frozen=True, slots=True)
class NativeFault:
    """The last trace in the file. Whether the process died of it, only its wait status tells."""

    error: str  # in the interpreter's words
    signal: str | None  # "SIGBUS", None where the error is no signal
    stack: tuple[str, ...]  # of the thread it happened in, innermost last; empty where that ran no Python
    do: str  # what to do, empty where that cannot be told from the signal


def parse_faults(data: bytes, where: str) -> Reading[NativeFault]:
    """Read the last trace; Unknown (MISSING) where there is none, which is how every process begins."""
    text = data[-LIMIT_BYTES:].decode("utf-8", "backslashreplace")
    found = next(reversed(list(_FAULT.finditer(text))), None)
    if found is None:
        return Unknown(Why.MISSING, where, None, "no trace of a native fault")
    error = found[1]
    signal = _SIGNALS.get(error)
    current = _CURRENT.search(text, found.end())
    stack = () if current is None else _stack(text[current.end() + 1 :])
    return Known(NativeFault(error, signal, stack, _DO.get(signal or "", "")))


def _stack(text: str) -> tuple[str, ...]:
    frames: list[str] = []
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame is None or len(frames) == _FRAMES:
            break
        frames.append(f"{frame[1]}:{frame[2]} {frame[3]}"[-_TEXT_ROOM:])
    return tuple(reversed(frames))
