"""A progress bar for people: one line on standard error while a load takes longer than a moment.

Only on a terminal, and never with OOMGUARD_PROGRESS=off. It is drawn when a tensor is begun, at most ten times a
second: no thread, and nothing is shown of a load that the library does in one call.
"""

from __future__ import annotations

import os
import sys
import time

from guard.switches import is_off

SWITCH = "OOMGUARD_PROGRESS"
_PATIENCE_SECONDS = 0.5
_PAUSE_SECONDS = 0.1
_MIB = 1 << 20
_WIDTH = 20
_USUAL_COLUMNS = 80


class Bar:
    """One line. Whoever draws it holds the lock of the load."""

    __slots__ = ("_drawn_s", "_expected", "_shown", "_started_s", "_what")

    def __init__(self, what: str, expected: int) -> None:
        self._what = what
        self._expected = expected
        self._started_s = time.monotonic()
        self._drawn_s = self._started_s + _PATIENCE_SECONDS - _PAUSE_SECONDS
        self._shown = 0

    def show(self, item: str | None, done: int) -> None:
        """Draw it, if the last time was long enough ago."""
        now = time.monotonic()
        if now - self._drawn_s < _PAUSE_SECONDS:
            return
        self._drawn_s = now
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_COLUMNS
        self._write(line(self._what, item, done, self._expected, now - self._started_s)[: columns - 1])

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._shown))
        sys.stderr.flush()
        self._shown = len(text)


def bar_for(what: str, expected: int | None) -> Bar | None:
    """Give a bar if somebody can see it and there is a whole to be part of."""
    if not expected or is_off(SWITCH) or not _is_terminal(sys.stderr):
        return None
    return Bar(os.path.basename(what), expected)  # noqa: PTH119 - no path object is made of a host's name


def _is_terminal(stream: object) -> bool:
    """Whether a stream is a terminal. What a server puts in its place may be None, closed, or lack any method."""
    try:
        return bool(stream.isatty()) and stream.fileno() >= 0  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False


def line(what: str, item: str | None, done: int, expected: int, seconds: float) -> str:
    """Word it: name, bar, share, sizes, rate, and what is in flight."""
    share = min(1.0, done / expected)
    filled = int(share * _WIDTH)
    rate = done / _MIB / max(seconds, 1e-9)
    sizes = f"{done / _MIB:.0f} of {expected / _MIB:.0f} MiB"
    bar = "#" * filled + "." * (_WIDTH - filled)
    return f"{what} [{bar}] {share:4.0%}  {sizes}  {rate:.0f} MiB/s  {item or ''}".rstrip()
