"""The edge: reads what is to be explained, and feeds the parser only what may matter.

A journal of 100 MB has few lines that say anything. Blocks are searched for stems of words first, which C does at
gigabytes a second; only lines that hold one, and lines behind them while a parser waits for more, are looked at in
Python. Small inputs are read line by line throughout, as states and events have names in lines without a stem.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from sidecar.explain.engine import InputParser
from sidecar.explain.incidents import incidents
from sidecar.explain.opening import InputError, Readable, opened
from sidecar.explain.unwrap import Unwrapper
from sidecar.explain.values import Incident, Report, Sign

SMALL: Final = 1 << 20
"""Bytes up to which every line is looked at."""
BLOCK: Final = 1 << 19
_ORDER_LINES: Final = 200
"""Lines by which the order of a small input is told."""
MAX_LINE: Final = 4 << 20
"""A line without end is cut here: binary data has no newlines."""
_STANDARD_INPUT: Final = 0
STEMS: Final = (
    *(b"(result:", b"/dev/shm", b"/torch_", b"0/1 ", b": *** [", b"abort", b"alloc", b"booting worker"),
    *(b"buffer", b"bus error", b"cache blocks", b"callbacks suppressed", b"cancelled at", b"child process"),
    *(b"cl_mem_object", b"cl_out_of", b"core dumped", b"corrupt", b"crashloop", b"cublas", b"cuda", b"cudnn"),
    *(b"cusolver", b"dataloader", b"deadlineexceeded", b"deletionby", b"device handle", b"died", b"emptydir"),
    *(b"engine", b"ephemeral", b"error 2", b"evict", b"exit", b"failed container", b"failed with result"),
    *(b"fallen off", b"fatal python", b"finishedat", b"floating point", b"general protection", b"ggml_"),
    *(b"harakiri", b"health checks", b"hostregister", b"illegal ", b"insufficient", b"interrupted"),
    *(b"invalid pointer", b"kb, limit ", b"kill", b"kv cache is needed", b"laststate", b"lmkd"),
    *(b"load weight end", b"log_dev_mem", b"low on ", b"main pid:", b"mem-fraction-static", b"mem-info"),
    *(b"mem_cgroup", b"memory", b"mmap", b"node shutdown", b"nodelost", b"nrt", b"nvrm", b"objectstorefull"),
    *(b"on host", b"on startup is", b"oom", b"out_of_me", b"pinned", b"posix_memalign", b"potential root"),
    *(b"preempt", b"prefill tokens", b"probe", b"profiled value", b"psm_", b"pt_devmem", b"reset"),
    *(b"resource_exhausted", b"scaling activity", b"segfault", b"segmentation", b"send sig", b"sending sig"),
    *(b"sigabrt", b"sigbus", b"signal", b"sigquit", b"sigsegv", b"startedat", b"stopping container"),
    *(b"stored in kv cache", b"xid", b"sys_ebusy", b"sys_enomem", b"term_memlimit", b"terminated"),
    *(b"than requested", b"time limit", b"timed out", b"too large for", b"total_vm", b"traceback (most"),
    *(b"traps:", b"unhealthy", b"ur_result", b"was sent", b"watchdog", b"wedged", b"with docker id"),
    b"worker timeout",
)
"""In lower case, none within another: each costs one search of the whole input."""


def explain(names: tuple[str, ...], progress: Callable[[int], None] | None = None) -> Report:
    """Read files ("-" is standard input) and explain what ended in them. Raises InputError."""
    signs: list[Sign] = []
    notes = []
    turned: dict[str, int] = {}
    for name in names:
        parser = InputParser("standard input" if name == "-" else name)
        try:
            is_turned = _read(name, parser, progress)
        except OSError as exc:
            raise InputError(f"{name}: {exc.strerror or exc}") from exc
        found, note = parser.finish()
        signs.extend(found)
        if is_turned:
            note.used = tuple(note.lines + 1 - line for line in note.used)
            turned[note.file] = note.lines
        notes.append(note)
    return Report(incidents=tuple(_numbered(one, turned) for one in incidents(signs)), inputs=tuple(notes))


def total_bytes(names: tuple[str, ...]) -> int | None:
    """Give the size of all inputs, None where one has none."""
    sizes = [Path(name).stat().st_size if name != "-" and Path(name).is_file() else None for name in names]
    return None if None in sizes else sum(one for one in sizes if one is not None)


def _read(name: str, parser: InputParser, progress: Callable[[int], None] | None) -> bool:
    with (
        open(_STANDARD_INPUT if name == "-" else name, "rb", closefd=name != "-") as file,
        opened(name, file) as text,
    ):
        return _feed(_blocks(text, progress), parser)


def _blocks(file: Readable, progress: Callable[[int], None] | None) -> Iterator[bytes]:
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


def _feed(blocks: Iterator[bytes], parser: InputParser) -> bool:
    """Feed all of a small input, and the lines that matter of a large one; tell whether it was read from its end."""
    read = 0
    lines: list[str] = []
    for block in blocks:
        read += len(block)
        if read > SMALL:
            break
        whole = block.split(b"\n")[: -1 if block.endswith(b"\n") else None]
        lines += [raw.decode("utf-8", "replace") for raw in whole]
    else:
        block = b""
    turned = not block and is_newest_first(lines)
    for number, text in enumerate(reversed(lines) if turned else lines, 1):
        parser.feed(number, text)
    number = len(lines)
    for one in itertools.chain([block] if block else [], blocks):
        number = feed_block(one, number, parser)
    parser.note.lines = number
    return turned


def _numbered(incident: Incident, turned: Mapping[str, int]) -> Incident:
    """Number the lines as they stand in the files, of which some were read from their ends."""
    evidence = (
        replace(one, line=turned[one.file] + 1 - one.line) if one.file in turned else one for one in incident.evidence
    )
    return replace(incident, evidence=tuple(evidence))


def is_newest_first(lines: list[str]) -> bool:
    """Tell the order of most log stores' exports: a time on every line, never a later one below."""
    formats: dict[str, int] = {}
    unwrap = Unwrapper("", formats)
    times = []
    for number, text in enumerate(lines[:_ORDER_LINES], 1):
        if not text.strip():
            continue
        stamp = next((line.stamp for line in unwrap.lines(number, text)), None)
        if stamp is None:
            return False
        times.append(stamp)
    pairs = list(itertools.pairwise(times))
    falling = all(one.clock is two.clock and one.seconds >= two.seconds for one, two in pairs)
    return falling and any(one.seconds > two.seconds for one, two in pairs)


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
