"""The sidecar's log: one JSON object a line, no decoration.

`{"ts": "2026-01-02T03:04:05.678Z", "mono": 12.345, "level": "info", "event": "model_seen", ...}`, then the key/values.

A log must not hurt what it reports on, so three things are bounded: a line is at most `LINE_BYTES`, an event name
that comes too often is counted instead of written (`suppressed` in its next line), and a reader that stops reading
loses lines instead of stopping the daemon (`lost` in the next line). The last works without a thread: a pipe that
poll(2) calls writable takes 4096 bytes (PIPE_BUF) without blocking, pipe(7).
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sidecar.clock import Clock
from sidecar.outputs.shape import Json, encode, iso, plain

LINE_BYTES: Final = 4096
_TEXT_BYTES: Final = 1024  # a single text field; three of them still fit a line
_NAMES: Final = 512  # event names with a rate of their own
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@dataclass(slots=True)
class _Rate:
    """Token bucket of one event name."""

    tokens: float
    at_monotonic_s: float
    suppressed: int = 0


@dataclass(slots=True, kw_only=True)
class JsonLog:
    """See the module's docstring. `fd` is written to, never closed. Errors of writing are counted, never raised."""

    clock: Clock
    fd: int = 2
    level: str = "info"
    burst: int = 20
    """Lines of one event name at once. A start or an incident writes fewer."""
    per_second: float = 1.0
    """Lines of one event name a second after the burst."""
    lost: int = 0
    _rates: dict[str, _Rate] = field(default_factory=dict)

    def debug(self, event: str, **fields: object) -> None:
        """Log what only a developer needs."""
        self.write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log that something happened as it should."""
        self.write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log what may need attention."""
        self.write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log what does not work."""
        self.write("error", event, fields)

    def write(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Log one line, unless its level is too low or its event name comes too often."""
        if _LEVELS.get(level, 0) < _LEVELS.get(self.level, 0):
            return
        now = self.clock.now()
        suppressed = self._admit(event, now.monotonic_s)
        if suppressed is None:
            return
        head: dict[str, Json] = {
            "ts": iso(now.wall_s),
            "mono": round(now.monotonic_s, 6),
            "level": level,
            "event": event,
        }
        if suppressed:
            head["suppressed"] = suppressed
        if self.lost:
            head["lost"] = self.lost
        self._put(_line(head, fields))

    def _admit(self, event: str, now: float) -> int | None:
        """Lines of this name left out since the last one, or None if this one is left out as well."""
        rate = self._rates.pop(event, None) or _Rate(float(self.burst), now)
        self._rates[event] = rate  # last in order: the longest unused name goes first
        if len(self._rates) > _NAMES:
            del self._rates[next(iter(self._rates))]
        rate.tokens = min(float(self.burst), rate.tokens + max(0.0, now - rate.at_monotonic_s) * self.per_second)
        rate.at_monotonic_s = now
        if rate.tokens < 1.0:
            rate.suppressed += 1
            return None
        rate.tokens -= 1.0
        left_out, rate.suppressed = rate.suppressed, 0
        return left_out

    def _put(self, line: bytes) -> None:
        try:
            poll = select.poll()
            poll.register(self.fd, select.POLLOUT)
            ready = poll.poll(0)
            if ready and ready[0][1] & select.POLLOUT and os.write(self.fd, line) == len(line):
                self.lost = 0
                return
        except OSError:
            pass
        self.lost += 1


def _line(head: dict[str, Json], fields: dict[str, object]) -> bytes:
    """Join head and fields into at most LINE_BYTES; what does not fit is cut and says so."""
    body = {(key + "_" if key in head else key): _cut(plain(value)) for key, value in fields.items()}
    line = encode(head | body) + b"\n"
    while len(line) > LINE_BYTES and body:
        del body[max(body, key=lambda key: len(encode(body[key])))]
        line = encode(head | body | {"cut": True}) + b"\n"
    return line if len(line) <= LINE_BYTES else encode({**head, "event": _cut(head["event"]), "cut": True}) + b"\n"


def _cut(value: Json) -> Json:
    """Shorten a long text: its first part, and how much there was."""
    if isinstance(value, str) and len(value) > _TEXT_BYTES:
        return f"{value[:_TEXT_BYTES]}... ({len(value)} characters)"
    return value


class _Captured(logging.Handler):
    """Standard-library records into the same lines: event "library", with logger, message and error."""

    def __init__(self, log: JsonLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a message that cannot be formatted is named, not raised."""
        fields: dict[str, object] = {"logger": record.name}
        try:
            fields["message"] = record.getMessage()
        except Exception as error:  # noqa: BLE001 - a library's own format error must not reach its caller
            fields["message"] = f"{record.msg!s} ({type(error).__name__} while formatting)"
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
            fields["where"] = _where(record.exc_info[1])
        level = next((name for name, number in reversed(_LEVELS.items()) if record.levelno >= number), "debug")
        self._log.write(level, f"library_{record.name}", fields)


def _where(error: BaseException) -> str:
    """The innermost frame of a traceback, "file:line function"."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown"
    code = trace.tb_frame.f_code
    return f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}"  # noqa: PTH119 - text, not a path


def capture_stdlib(log: JsonLog, level: int = logging.WARNING) -> Callable[[], None]:
    """Send what libraries log (aiohttp, asyncio) through `log` alone. Returns what puts the old state back."""
    root = logging.getLogger()
    before, before_level = root.handlers[:], root.level
    handler = _Captured(log)
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)

    def undo() -> None:
        logging.captureWarnings(capture=False)
        root.handlers[:] = before
        root.setLevel(before_level)

    return undo
