"""The edge: opens what is to be explained, unpacks gzip, and feeds the parser only what may matter.

A journal of 100 MB has few lines that say anything. Blocks are searched for stems of words first, which C does at
gigabytes a second; only lines that hold one, and lines behind them while a parser waits for more, are looked at in
Python. Small inputs are read line by line throughout, as states and events have names in lines without a stem.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from sidecar.explain.engine import InputParser
from sidecar.explain.incidents import incidents
from sidecar.explain.values import Report, Sign

SMALL: Final = 1 << 20
"""Bytes up to which every line is looked at."""
BLOCK: Final = 1 << 19
MAX_LINE: Final = 4 << 20
"""A line without end is cut here: binary data has no newlines."""
_GZIP: Final = b"\x1f\x8b"
STEMS: Final = (
    *(b"(result:", b"/dev/shm", b"/torch_", b"aborted", b"alloc", b"booting worker", b"buffer"),
    *(b"bus error", b"cache blocks", b"callbacks suppressed", b"child process", b"cl_mem_object"),
    *(b"cl_out_of", b"core dumped", b"corrupt", b"crashloop", b"cublas", b"cuda", b"cudnn", b"cusolver"),
    *(b"dataloader", b"deadlineexceeded", b"device handle", b"died", b"emptydir", b"engine", b"ephemeral"),
    *(b"error 2", b"evict", b"exit", b"failed with result", b"fallen off", b"fatal python", b"finishedat"),
    *(b"floating point", b"general protection", b"ggml_", b"health checks", b"hostregister"),
    *(b"illegal instruction", b"insufficient_resources", b"invalid pointer", b"kb, limit ", b"kill"),
    *(b"kv cache is needed", b"laststate", b"lmkd", b"load weight end", b"low on ", b"main pid:"),
    *(b"mem-fraction-static", b"mem-info", b"mem_cgroup", b"memory", b"mmap", b"nrt", b"nvrm", b"on host"),
    *(b"on startup is", b"oom", b"pinned", b"posix_memalign", b"potential root", b"preempt"),
    *(b"prefill tokens", b"probe", b"profiled value", b"pt_devmem", b"reset", b"resource_exhausted"),
    *(b"scaling activity", b"segfault", b"segmentation", b"send sig", b"sending sig", b"sigbus", b"signal"),
    *(b"startedat", b"stopping container", b"stored in kv cache", b"sys_ebusy", b"sys_enomem"),
    *(b"terminated", b"than requested", b"timed out", b"total_vm", b"traps:", b"unhealthy", b"ur_result"),
    *(b"was sent", b"watchdog", b"with docker id", b"worker timeout"),
)
"""In lower case, none within another: each costs one search of the whole input."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class InputError(Exception):
    """An input that cannot be read: the text names it and says why."""


def explain(names: tuple[str, ...], progress: Callable[[int], None] | None = None) -> Report:
    """Read files ("-" is standard input) and explain what ended in them. Raises InputError."""
    signs: list[Sign] = []
    notes = []
    for name in names:
        parser = InputParser("standard input" if name == "-" else name)
        try:
            _read(name, parser, progress)
        except (OSError, EOFError, gzip.BadGzipFile) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else "damaged gzip data"
            raise InputError(f"{name}: {reason}") from exc
        found, note = parser.finish()
        signs.extend(found)
        notes.append(note)
    return Report(incidents=incidents(signs), inputs=tuple(notes))


def total_bytes(names: tuple[str, ...]) -> int | None:
    """Give the size of all inputs, None where one has none."""
    sizes = [Path(name).stat().st_size if name != "-" and Path(name).is_file() else None for name in names]
    return None if None in sizes else sum(one for one in sizes if one is not None)


def _read(name: str, parser: InputParser, progress: Callable[[int], None] | None) -> None:
    if name == "-":
        _feed(_blocks(sys.stdin.buffer, progress), parser)
        return
    with Path(name).open("rb") as file:
        if not file.peek(len(_GZIP)).startswith(_GZIP):  # no seeking: it may be a pipe
            _feed(_blocks(file, progress), parser)
            return
        with gzip.open(file) as plain:
            _feed(_blocks(plain, progress), parser)


def _blocks(file: _Readable, progress: Callable[[int], None] | None) -> Iterator[bytes]:
    """Give blocks that end at the end of a line."""
    rest = b""
    while block := file.read(BLOCK):
        if progress is not None:
            progress(len(block))
        block = rest + block
        cut = block.rfind(b"\n") + 1
        if cut == 0 and len(block) > MAX_LINE:
            cut = len(block)
        rest = block[cut:]
        if cut:
            yield block[:cut]
    if rest:
        yield rest


def _feed(blocks: Iterator[bytes], parser: InputParser) -> None:
    """Feed everything of a small input, and the lines that matter of a large one."""
    number = read = 0
    for block in blocks:
        read += len(block)
        if read <= SMALL:
            for raw in block.split(b"\n")[: -1 if block.endswith(b"\n") else None]:
                number += 1
                parser.feed(number, raw.decode("utf-8", "replace"))
        else:
            number = feed_block(block, number, parser)
    parser.note.lines = number


def feed_block(block: bytes, number: int, parser: InputParser) -> int:
    """Feed the lines of a block that hold a stem, and those behind while the parser waits; give the last number."""
    at = counted = 0
    for start in _starts(block):
        while at < start and parser.busy:
            number, at = _one(block, at, number + block.count(b"\n", counted, at), parser)
            counted = at
        if start < at:
            continue
        number, at = _one(block, start, number + block.count(b"\n", counted, start), parser)
        counted = at
    while at < len(block) and parser.busy:
        number, at = _one(block, at, number + block.count(b"\n", counted, at), parser)
        counted = at
    return number + block.count(b"\n", counted)


def _one(block: bytes, at: int, before: int, parser: InputParser) -> tuple[int, int]:
    """Feed the line at an offset; give its number and the offset of the next."""
    end = block.find(b"\n", at)
    end = len(block) if end < 0 else end
    parser.feed(before + 1, block[at:end].decode("utf-8", "replace"))
    return before + 1, end + 1


def _starts(block: bytes) -> list[int]:
    """Give the offsets of lines that hold a stem, in order."""
    lowered = block.lower()
    found = set()
    for stem in STEMS:
        at = lowered.find(stem)
        while at >= 0:
            found.add(lowered.rfind(b"\n", 0, at) + 1)
            end = lowered.find(b"\n", at)
            at = -1 if end < 0 else lowered.find(stem, end)
    return sorted(found)
