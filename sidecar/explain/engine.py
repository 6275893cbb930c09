"""One input's lines in, its signs out: unwraps, joins what a terminal wrapped, and asks every parser."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from sidecar.explain.cgroup_files import CgroupFilesParser
from sidecar.explain.formats import kind_of
from sidecar.explain.gunicorn import GunicornParser
from sidecar.explain.kernel import KernelParser, bare
from sidecar.explain.messages.table import ALL
from sidecar.explain.own import WORDS, OwnParser
from sidecar.explain.patterns import LONGEST_LINE, MessageParser
from sidecar.explain.probes import ProbeParser
from sidecar.explain.status import StatusParser
from sidecar.explain.traceback import TracebackParser
from sidecar.explain.unwrap import Unwrapper
from sidecar.explain.values import InputNote, Line, Sign
from sidecar.explain.words import WordIndex
from sidecar.explain.xid import XidParser

_ANSI: Final = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
_WRAP: Final = 79
"""A line this long may have been cut by a terminal."""
_SHOWN: Final = 200  # numbers of used lines that are kept
_FIRST: Final = 64
"""Lines at the beginning that are looked at whatever they say, to tell the kind of the input."""
_STATE_CODE: Final = re.compile(
    r"^\s*(?:- )?[\"']?exit[ _]?code[\"']?\s{0,16}[:=]\s{0,16}[\"']?-?\d{1,3}[\"']?,?\s*$", re.IGNORECASE
)
"""One line of a container's state: the parser of states judges it together with the others."""
_PROMPT: Final = re.compile(
    r"\bprompt(?:_text)?[\"']?\s?[:=]\s?[\"']"
    r"|[\"']role[\"']\s?:\s?[\"'](?:user|assistant|system)[\"']|[\"']content[\"']:\s?[\"']"
    r"|\bGenerated (?:streaming )?response\b|\b(?:generated_text|completion)[\"']?\s?[:=]\s?[\"']",
    re.IGNORECASE,
)
"""A server that logs its requests quotes what people ask about and are told, not what happened to it."""
_OTHERS: Final = frozenset(("gunicorn", "probe"))
_INDEX: Final = WordIndex(
    (
        *((word, "message") for pattern in ALL for word in pattern.words),
        *(
            (word, "kernel")
            for word in ("oom", "killed", "kill process", "task in ", "tasks in ", "kb, limit ", "total_vm")
        ),
        *(
            (word, "kernel")
            for word in (
                "memory cgroup",
                "mem_cgroup",
                "mem-info",
                "try_charge",
                "ut of memory",
                "cache: ",
                "panic_on_oom is",
            )
        ),
        *((word, "kernel") for word in ("callbacks suppressed", "cpuset=", "panic_on_oom is")),
        *((word, "gunicorn") for word in ("worker timeout", "was sent", "booting worker")),
        *((word, "probe") for word in ("probe", "unhealthy", "killing", "with docker id", "with id")),
        ("container kill", "probe"),
        *((word, "own") for word in WORDS),
        ("traceback (most", "traceback"),
        *(
            (word, "gpu")
            for word in ("nvrm", "gpu", "rm_init_adapter", "rminitadapter", "device handle", "amdgpu", "wedged")
        ),
    )
)


class InputParser:
    """Everything that one file says. Feed it physical lines in order, then take `finish`."""

    def __init__(self, file: str) -> None:
        self.note = InputNote(file=file)
        self._formats: dict[str, int] = {}
        self._unwrap = Unwrapper(file, self._formats)
        self._kernel = KernelParser(file)
        self._messages = MessageParser(ALL)
        self._xids, self._probes, self._gunicorn = XidParser(), ProbeParser(), GunicornParser()
        self._status, self._counters = StatusParser(), CgroupFilesParser()
        self._traceback, self._own = TracebackParser(), OwnParser()
        self._used: list[int] = []
        self._writers: dict[str, int] = {}
        self._held: Line | None = None
        self._read = 0

    @property
    def busy(self) -> bool:
        """Tell whether the next line matters whatever it says."""
        parsers = (self._kernel, self._messages, self._xids, self._status, self._counters, self._traceback)
        return self._held is not None or any(one.busy for one in parsers)

    def feed(self, number: int, text: str) -> None:
        """Take one physical line without its newline."""
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        if "\r" in text:
            text = text.rstrip("\r").rpartition("\r")[2]
        if self._says_nothing(text):
            self._plain(Line(file=self.note.file, number=number, text=text, whole=text))
            return
        for line in self._unwrap.lines(number, text):
            self._join(_cut(line))

    def _says_nothing(self, text: str) -> bool:
        """Tell a line that no parser but those of states and counters can want; most lines of a log are such."""
        if text[:1] in "{[" or self._unwrap.is_within(text) or len(text) > LONGEST_LINE or self._read < _FIRST:
            self._read += 1
            return False
        parsers = (self._kernel, self._messages, self._xids, self._traceback)
        return self._held is None and not any(one.busy for one in parsers) and not _INDEX.find(text.lower())

    def finish(self) -> tuple[list[Sign], InputNote]:
        """Give the signs in the order of their lines, and what was read."""
        for line in self._unwrap.rest():
            self._join(line)
        if self._held is not None:
            self._judge(self._held)
            self._held = None
        found: Iterable[Sign] = (
            *self._kernel.finish(),
            *self._messages.finish(),
            *self._xids.finish(),
            *self._probes.finish(),
            *self._gunicorn.finish(),
            *self._status.finish(),
            *self._counters.finish(),
            *self._traceback.finish(),
            *self._own.finish(),
        )
        signs = sorted(found, key=lambda sign: sign.line)
        self.note.formats = tuple(self._formats)
        self.note.used = tuple(dict.fromkeys(self._used))[:_SHOWN]
        self.note.fields = self._counters.readings()
        return signs, self.note

    def _join(self, line: Line) -> None:
        """Put a line that a terminal wrapped back together: a long or empty one with a prefix, then one without."""
        held, self._held = self._held, None
        if held is not None:
            if self._goes_on(held, line):
                joined = replace(held, text=held.text + line.text, whole=held.whole + line.whole)
                if _is_cut(joined, last=line):
                    self._held = joined
                else:
                    self._judge(joined)
                return
            self._judge(held)
        if _is_cut(line, last=line):
            self._held = line
        else:
            self._judge(line)

    def _goes_on(self, held: Line, line: Line) -> bool:
        plain = line.stamp is None and line.program is None and line.kernel is None
        starts = line.whole[:1]
        return (
            plain
            and starts not in ("", " ", "\t", "[", "{", "<")
            and (not held.text.strip() or _reads_on(held.text, line.text))
        )

    def _judge(self, line: Line) -> None:
        if line.writer:
            line = replace(line, part=-1 - self._writers.setdefault(line.writer, len(self._writers)))
        elif self._status.part:
            line = replace(line, part=self._status.part)
        kind = kind_of(line)
        if kind is not None:
            self._formats.setdefault(kind, line.number)
        wanted = _INDEX.find(line.whole.lower())
        if wanted and _PROMPT.search(line.text):
            return
        if "own" in wanted and self._own.feed(line):
            self._plain(line, used=True)
            return
        used = (self._kernel.busy or "kernel" in wanted) and self._kernel.feed(bare(line))
        if not used and wanted & _OTHERS:
            used = self._gunicorn.feed(line) or self._probes.feed(line)
        if not used and (self._xids.busy or "gpu" in wanted):
            used = self._xids.feed(line)
        if not used and (line.stamp is not None or not _STATE_CODE.match(line.text)):
            used = self._messages.feed(line)
        self._traceback.feed(line)
        if line.stamp is not None:
            self._status.skip()
            self._counters.skip()
        self._plain(line, used=used)

    def _plain(self, line: Line, *, used: bool = False) -> None:
        """Ask the parsers of states and counters, whose lines have no time before them."""
        if line.stamp is None:
            used = self._status.feed(line) or used
            used = self._counters.feed(line) or used
        if used and len(self._used) < _SHOWN:
            self._used.append(line.number)
            if (kind := kind_of(line)) is not None:
                self._formats.setdefault(kind, line.number)


def _cut(line: Line) -> Line:
    """Cut a very long line in the middle, so that no pattern has more than that to look at."""
    if len(line.whole) <= LONGEST_LINE:
        return line
    half = LONGEST_LINE // 2
    whole = line.whole[:half] + line.whole[-half:]
    text = line.text if len(line.text) <= LONGEST_LINE else line.text[:half] + line.text[-half:]
    return replace(line, text=text, whole=whole)


def _is_cut(line: Line, *, last: Line) -> bool:
    prefixed = line.stamp is not None and line.kernel is not None
    return prefixed and (len(last.whole) >= _WRAP or not line.text.strip())


def _reads_on(before: str, after: str) -> bool:
    """Tell a torn word from a new sentence: the kernel's lines that are long are lists of paths and numbers."""
    return before.startswith(
        ("Task in ", "Memory cgroup stats", "oom-kill:", "Memory cgroup out", "Tasks in ")
    ) and not re.match(r"[A-Z][a-z]+ |\w+ invoked|oom|Kill", after)
