"""Records that hold a message: journal export and JSON, Docker's json-file, JSON logs; compact documents, spread out.

`journalctl -o json` prints MESSAGE as a list of byte values where it is not valid UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sidecar.explain.own import RECORD
from sidecar.explain.prefix import line_of
from sidecar.explain.values import Clock, Line, Stamp

_MESSAGES: Final = ("MESSAGE", "log", "message", "msg", "Msg", "textPayload", "line")
_INSIDE: Final = ("jsonPayload", "_source", "result")
"""Where Google Cloud Logging, Elasticsearch and Splunk put the record that they export."""
_BESIDE: Final = ("error", "err", "exception", "exc_info", "stack_trace", "stacktrace", "traceback")
"""Where loggers put a failure that the message only announces."""
_TIMES: Final = ("time", "timestamp", "ts", "TimeStamp", "@timestamp")
_EXPORT: Final = (
    "__CURSOR=",
    "__REALTIME_TIMESTAMP=",
    "MESSAGE=",
    "_TRANSPORT=",
    "SYSLOG_IDENTIFIER=",
    "_PID=",
    "_HOSTNAME=",
)
_DEEPEST: Final = 1 << 22  # characters of one JSON line that are parsed


@dataclass(slots=True)
class Unwrapper:
    """Turns physical lines of one file into lines to judge."""

    file: str
    formats: dict[str, int]
    _record: dict[str, str] | None = None
    _record_line: int = 0

    def lines(self, number: int, whole: str) -> Iterator[Line]:
        """Give what one physical line holds: itself, the message in it, or the lines of a document."""
        if self.is_within(whole):
            yield from self._export(number, whole)
        elif whole[:1] in "{[" and whole.rstrip()[-1:] in "}]" and len(whole) < _DEEPEST:
            yield from self._json(number, whole)
        else:
            yield line_of(self.file, number, whole)

    def is_within(self, text: str) -> bool:
        """Tell whether a line is part of a record of the journal's export format."""
        return self._record is not None or text.startswith(_EXPORT)

    def rest(self) -> Iterator[Line]:
        """Give the last record, whose blank line never came."""
        if self._record is not None:
            record, self._record = self._record, None
            yield self._of_record(self._record_line, record)

    def _export(self, number: int, whole: str) -> Iterator[Line]:
        self.formats.setdefault("journal export", number)
        if whole.strip() == "":
            yield from self.rest()
            return
        if self._record is None:
            self._record, self._record_line = {}, number
        name, equals, value = whole.partition("=")
        if equals:
            if name == "MESSAGE":
                self._record_line = number
            self._record.setdefault(name, value)

    def _json(self, number: int, whole: str) -> Iterator[Line]:
        try:
            value = json.loads(whole)
        except (ValueError, RecursionError):
            yield line_of(self.file, number, whole)
            return
        value = _record(value)
        if isinstance(value, dict) and RECORD.search(whole) and "event" in value:
            self.formats.setdefault("log of oomguard", number)
            yield self._of_record(number, {**_texts(value), **_micros(value.get("at_wall_s")), "MESSAGE": whole})
            return
        if isinstance(value, dict) and (event := _event(value)) is not None:
            self.formats.setdefault("events of the container engine", number)
            yield replace(self._of_record(number, event), whole=whole)
            return
        if isinstance(value, dict) and (message := _message(value)) is not None:
            known = "journal JSON" if "MESSAGE" in value else "JSON lines"
            self.formats.setdefault(known, number)
            for part in message.splitlines()[:1000] or [""]:
                yield replace(
                    self._of_record(number, {**_texts(value), "MESSAGE": part}),
                    whole=whole if "MESSAGE" not in value else part,
                )
            for part in _beside(value, message):
                yield self._of_record(number, {**_texts(value), "MESSAGE": part})
            return
        if not isinstance(value, (dict, list)) or not value or (whole[:1] == "[" and not isinstance(value[0], dict)):
            yield line_of(self.file, number, whole)
            return
        self.formats.setdefault("JSON document", number)
        for text in json.dumps(value, indent=2, ensure_ascii=False).splitlines():
            yield Line(file=self.file, number=number, text=text.strip(), whole=text)

    def _of_record(self, number: int, record: Mapping[str, str]) -> Line:
        message = record.get("MESSAGE", "")
        line = line_of(self.file, number, message)
        micros = record.get("__REALTIME_TIMESTAMP", "")
        stamp = line.stamp
        if micros.isdigit() and len(micros) < 20:  # noqa: PLR2004 - fits a float
            stamp = Stamp(_iso(int(micros)), Clock.WALL, int(micros) / 1e6)
        else:
            text = next((record[name] for name in _TIMES if name in record), None)
            stamp = line_of(self.file, number, f"{text} ").stamp if text else stamp
        program = record.get("SYSLOG_IDENTIFIER") or line.program
        kernel = record["_TRANSPORT"] == "kernel" if "_TRANSPORT" in record else line.kernel
        pid = record.get("_PID", "")
        return replace(line, stamp=stamp, program=program, kernel=kernel, pid=int(pid) if pid.isdigit() else line.pid)


def _record(value: Any) -> Any:  # noqa: ANN401 - whatever stood in the line
    """Take a log store's record out of its envelope, whose time it keeps."""
    if not isinstance(value, dict):
        return value
    inside = next((value[name] for name in _INSIDE if isinstance(value.get(name), dict)), None)
    return value if inside is None or _message(inside) is None else {**_texts(value), **inside}


def _event(value: Mapping[str, Any]) -> dict[str, str] | None:
    """Write an event of `docker events --format json` as `docker events` prints it: action, id, attributes."""
    actor, action = value.get("Actor"), value.get("Action")
    if value.get("Type") != "container" or not isinstance(action, str) or not isinstance(actor, dict):
        return None
    attributes = actor.get("Attributes")
    pairs = attributes.items() if isinstance(attributes, dict) else ()
    words = ", ".join(f"{name}={one}" for name, one in sorted(pairs, key=lambda pair: str(pair[0])))
    nanos = value.get("timeNano")
    micros = {"__REALTIME_TIMESTAMP": str(nanos // 1000)} if isinstance(nanos, int) else {}
    return {"MESSAGE": f"container {action} {actor.get('ID', '')} ({words})", **micros}


def _message(value: Mapping[str, Any]) -> str | None:
    if "State" in value or "kind" in value or ("status" in value and isinstance(value["status"], dict)):
        return None
    for name in _MESSAGES:
        message = value.get(name)
        if isinstance(message, str):
            return message
        if name == "MESSAGE" and isinstance(message, list):
            return bytes(one for one in message if isinstance(one, int) and 0 <= one < 256).decode("utf-8", "replace")  # noqa: PLR2004 - bytes
    return None


def _beside(value: Mapping[str, Any], message: str) -> list[str]:
    told = [one for name in _BESIDE if isinstance(one := value.get(name), str) and one not in message]
    return [part for one in told for part in one.splitlines()[:1000]]


def _texts(value: Mapping[str, Any]) -> dict[str, str]:
    return {name: one for name, one in value.items() if isinstance(one, str)}


def _micros(wall_s: object) -> dict[str, str]:
    if isinstance(wall_s, int | float) and 0 < wall_s < 1e10:  # noqa: PLR2004 - up to the year 2286
        return {"__REALTIME_TIMESTAMP": str(round(wall_s * 1e6))}
    return {}


def _iso(micros: int) -> str:
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(micros / 1e6, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return str(micros)
