"""How a failure is told: once in the box, as a line on standard error, and, where it is fatal, in the termination log.

One failure is often seen more than once: by the allocator's observer before the exception exists, by the server that
catches and reports it, by the hook that sees it end the process. These are one record. A later sight replaces the
earlier one in the box (there is no instant without a record, as SIGKILL may come between) and keeps its exact figures.

Standard error cannot be replaced: it gets a line at the first sight, as that may be the last, and one more if the
failure turns out to be fatal. A server that survives thousands of them gets a few lines, the box their number.
"""

from __future__ import annotations

import _thread
import dataclasses
import os
import sys
from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from guard.adapters import torchelastic
from guard.failure import json_line, termination_text
from guard.fence import fence
from guard.lastwords import write_stderr, write_termination_log
from guard.recognise import fits

if TYPE_CHECKING:
    from guard.box.writer import BoxWriter
    from guard.model import Failure

_REMEMBERED: Final = 4
_SAME_SECONDS: Final = 60.0
"""How long after the first sight an exception may arrive that is the same failure."""
_BURST, _BURST_SECONDS = 8, 10.0
"""So many lines about survived failures in so many seconds."""


class Told:
    """A failure that was told. `thrown` is false while only the allocator has seen it."""

    __slots__ = ("box", "failure", "number", "thrown", "times")

    def __init__(self, failure: Failure, *, thrown: bool) -> None:
        self.failure = failure
        self.thrown = thrown
        self.box: BoxWriter | None = None
        self.number = 0
        self.times = 1


class Teller:
    """Tells the failures of one process; its child after fork has its own."""

    __slots__ = ("_lines", "_lock", "_recent", "_session", "left_out")

    def __init__(self, session: str) -> None:
        self._session = session
        self._lock = _thread.RLock()
        self._recent: deque[Told] = deque(maxlen=_REMEMBERED)
        self._lines: deque[float] = deque(maxlen=_BURST)
        self.left_out = 0

    def observed(self, box: BoxWriter | None, failure: Failure) -> Told:
        """Keep what the allocator saw, before its exception exists. The same allocation again is counted."""
        with self._lock:
            for told in self._recent:
                if not told.failure.fatal and _repeats(told.failure, failure):
                    told.times += 1
                    told.thrown = False
                    self._keep(told, box, failure)
                    return told
            return self._first(box, failure, thrown=False)

    def add(self, told: Told, box: BoxWriter | None, fields: dict[str, str | int | float]) -> None:
        """Add to a record that was kept."""
        with self._lock:
            self._keep(told, box, _with_fields(told.failure, {**told.failure.fields, **fields}))

    def caught(self, box: BoxWriter | None, failure: Failure, *, loud: bool) -> None:
        """Keep an exception that a hook saw, and say it unless its allocation was said already."""
        with self._lock:
            earlier = next((told for told in reversed(self._recent) if _same(told, failure)), None)
            if earlier is None:
                told = self._first(box, failure, thrown=True)
            else:
                told = earlier
                told.thrown = True
                self._keep(told, box, _merged(told.failure, failure))
        if loud and (earlier is None or failure.fatal):
            self.say(told.failure)

    def say(self, failure: Failure) -> None:
        """Write the line, and for a fatal failure the termination log."""
        if not failure.fatal and not self._may_say(failure.at_monotonic_s):
            self.left_out += 1
            return
        about: dict[str, object] = {
            "pid": os.getpid(),
            "session": self._session,
            "command": " ".join(sys.argv[:3])[:200],
        }
        if self.left_out:
            about["lines_left_out"], self.left_out = self.left_out, 0
        line = json_line(failure, about)
        with fence("stderr"):
            write_stderr(line)
        if failure.fatal:
            with fence("termination-log"):
                write_termination_log(termination_text(failure, line))
            if os.environ.get(torchelastic.VARIABLE):
                with fence("torchelastic"):
                    torchelastic.write_error_file(failure, os.environ[torchelastic.VARIABLE])

    def _may_say(self, now_s: float) -> bool:
        lines = self._lines
        if len(lines) == _BURST and now_s - lines[0] < _BURST_SECONDS:
            return False
        lines.append(now_s)
        return True

    def _first(self, box: BoxWriter | None, failure: Failure, *, thrown: bool) -> Told:
        told = Told(failure, thrown=thrown)
        self._recent.append(told)
        self._keep(told, box, failure)
        return told

    def _keep(self, told: Told, box: BoxWriter | None, failure: Failure) -> None:
        if told.times > 1:
            failure = _with_fields(failure, {**failure.fields, "times": told.times})
        told.failure = failure
        if box is not None:
            with fence("box"):
                told.number = box.fail(failure, instead_of=told.number if told.box is box else 0)
                told.box = box


def _with_fields(failure: Failure, fields: dict[str, str | int | float]) -> Failure:
    return dataclasses.replace(failure, fields=MappingProxyType(fields))


def _repeats(earlier: Failure, later: Failure) -> bool:
    """Whether the allocator failed at the same place for the same size again."""
    return (
        (earlier.kind, earlier.stack, earlier.thread) == (later.kind, later.stack, later.thread)
        and earlier.fields.get("device") == later.fields.get("device")
        and earlier.fields.get("requested_bytes") == later.fields.get("requested_bytes")
    )


def _same(told: Told, later: Failure) -> bool:
    """Whether an exception is the failure that was told: the very one again, or the one the allocator announced."""
    earlier = told.failure
    if earlier.kind != later.kind or later.at_monotonic_s - earlier.at_monotonic_s > _SAME_SECONDS:
        return False
    if told.thrown and (earlier.exception, earlier.message) == (later.exception, later.message):
        return True
    requested = earlier.fields.get("requested_bytes")
    return (
        isinstance(requested, int)
        and fits(requested, later.fields.get("requested_bytes"))
        and later.fields.get("device", earlier.fields.get("device")) == earlier.fields.get("device")
    )


def _merged(earlier: Failure, later: Failure) -> Failure:
    """The later sight with the earlier one's exact figures, place and thread."""
    fields = dict(earlier.fields)
    exact = fields and "figures" not in fields
    for name, value in later.fields.items():
        if not (exact and (name.endswith("_bytes") or name == "figures")):
            fields.setdefault(name, value)
    return dataclasses.replace(
        later,
        fatal=earlier.fatal or later.fatal,
        stack=earlier.stack or later.stack,
        thread=earlier.thread or later.thread,
        fields=MappingProxyType(fields),
    )
