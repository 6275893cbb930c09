"""What loggers put before a message: time, host, program, level. Taken off one after another, whichever stand there.

Only the message is judged, but "kernel" before it, and the time, say much about it. Month names may be in any language,
brackets may be lost, and a time may be a torn pid: what cannot be read is passed over, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from sidecar.explain.values import Clock, Line, Stamp

_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            ("jan", "янв", "ene", "janv", "gen", "1月"),
            ("feb", "фев", "févr", "fév", "2月"),
            ("mar", "мар", "mär", "mars", "mrz", "maa", "3月"),
            ("apr", "апр", "avr", "avril", "abr", "4月"),
            ("may", "мая", "май", "mai", "mei", "maj", "mag", "5月"),
            ("jun", "июн", "juin", "giu", "6月"),
            ("jul", "июл", "juil", "lug", "7月"),
            ("aug", "авг", "août", "ago", "8月"),
            ("sep", "сен", "sept", "set", "9月"),
            ("oct", "окт", "okt", "out", "ott", "10月"),
            ("nov", "ноя", "11月"),
            ("dec", "дек", "déc", "dez", "dic", "12月"),
        ),
        1,
    )
    for name in names
}
_TIME: Final = r"(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?"
_BOOT: Final = re.compile(r"\[?\s{0,12}(\d{1,9}\.\d{6})(?: <[ \d.]{1,16}>)?\](?:\[\s*([TC]\d{1,8})\])?\s?")
_UNIX: Final = re.compile(r"(\d{10}\.\d{6}) (?=\S{1,128} \S{1,80}: )")
"""journalctl -o short-unix."""
_SINCE: Final = re.compile(r"\[(?:\s{0,8}\+\d{1,8}\.\d{6}|([A-Z][a-z]{2})\s?(\d{1,2}) (\d{2}):(\d{2}))\]\s?")
"""dmesg -H: a date at times, else the time since the line before."""
_DECODED: Final = re.compile(r"(kern|user|daemon|syslog|auth|local\d)\s{0,4}:[a-z]{3,6}\s{0,4}: ")
"""dmesg -x: facility and level."""
_RFC5424: Final = re.compile(r"1 (?=\d{4}-)")
_RFC5424_PROGRAM: Final = re.compile(r"(\S{1,128}) (\S{1,48}) (\d{1,10}|-) \S{1,32} (?:-|\[[^\]]{0,400}\]) ")
_HOST_AND: Final = re.compile(r"(\S{1,128}) (kernel|[\w.@/()-]{1,64}\[\d{1,10}\]): ")
"""journalctl -o short-monotonic puts the host and the program behind the kernel's clock."""
_FULL: Final = re.compile(r"[A-Z][a-z]{2} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) [A-Z+-][A-Z\d]{1,5} (?=\S)")
"""journalctl -o short-full: the name of a zone says no offset."""
_CTIME: Final = re.compile(rf"\[\s?(\S{{1,12}}\s+)?(\S{{1,12}})\s+(\d{{1,2}})\s+{_TIME}\s+(\d{{4}})\]\s?")
_SYSLOG: Final = re.compile(rf"([^\W\d_]{{2,12}}\.?|\d{{1,2}}月)\s+(\d{{1,2}})\s+{_TIME}\s+(?=\S)")
_HOST_PROGRAM: Final = re.compile(r"(?:(\S{1,128})\s+)?([\w.@/()-]{1,64}?)(?:\[(\d{1,10})\])?:(?:\s|$)")
_ISO: Final = re.compile(
    rf"[\[(]?(\d{{4}})[-/](\d{{2}})[-/](\d{{2}})[T ]{_TIME}\s?(Z|[+-]\d{{2}}:?\d{{2}})?[\])]?(?::(?=\s)|\s|$)"
)
_KMSG: Final = re.compile(r"(\d{1,4}),(\d{1,20}),(\d{1,20}),[^;\s]{1,64};")
_LEVEL: Final = re.compile(r"<\d{1,3}>")
_COMPOSE: Final = re.compile(r"([\w.-]{1,64})\s{0,64}\| ")
_PREFIXED: Final = re.compile(r"\[pod/([a-z0-9][\w./-]{0,320})\] ")
"""kubectl logs --prefix."""
_STERN: Final = re.compile(r"([a-z0-9][a-z0-9.-]{0,252} [a-z0-9-]{1,63}) (?=\d{4}-\d\d-\d\dT)")
_ENDED: Final = re.compile(r"([\w.-]{1,64}) (?=exited with code -?\d{1,3}\s*$)")
"""What docker compose says of a container itself."""
_CRI: Final = re.compile(r"std(?:out|err) [FP] ")
_TIMES: Final = 4
_ANY_TIME: Final = re.compile(
    r"\b(\d{10}\.\d{6})\d{0,3}\b|\[\s{0,8}\d{1,9}\.\d{6}\]|\b\d{4}-\d\d-\d\d[T ]\d\d:|\b[A-Z][a-z]{2} [ \d]\d \d\d:"
)
_FACILITY_SHIFT: Final = 3
_PRINTK: Final = ("kernel", "klogd")


@dataclass(slots=True)
class _Parts:
    """What was found before the message so far."""

    stamp: Stamp | None = None
    program: str | None = None
    pid: int | None = None
    host: str = ""
    caller: str = ""
    kernel: bool | None = None
    writer: str = ""


def line_of(file: str, number: int, whole: str) -> Line:
    """Take the prefix off one line. Total: a line without any is its own message."""
    parts = _Parts()
    text = _strip(whole, parts)
    return Line(
        file=file,
        number=number,
        text=text,
        whole=whole,
        stamp=parts.stamp,
        program=parts.program,
        pid=parts.pid,
        caller=f"{parts.host} {parts.caller}".strip(),
        kernel=parts.kernel,
        writer=parts.writer,
    )


def stamp_within(head: str) -> Stamp | None:
    """Give the last time that stands anywhere in what precedes a message, None where none does."""
    parts = _Parts()
    head = head.replace('"', " ").replace("'", " ")
    for found in list(_ANY_TIME.finditer(head))[: -_TIMES - 1 : -1]:
        if found[1] is not None:
            return Stamp(found[1], Clock.WALL, float(found[1]))
        _strip(f"{head[found.start() :]} ", parts)
        if parts.stamp is not None:
            break
    return parts.stamp


def _strip(text: str, parts: _Parts) -> str:
    for _ in range(6):
        shorter = _strip_once(text, parts)
        if shorter is text:
            break
        text = shorter
    return text


def _strip_once(text: str, parts: _Parts) -> str:
    """Take one thing off, or give the very same text."""
    first = text[:1]
    steps = _BY_WORD if first.isalpha() else _BY_DIGIT if first.isdigit() else _BY_SIGN if first in _SIGNS else ()
    for pattern, read in steps:
        found = pattern.match(text)
        if found is not None and (rest := read(text, found, parts)) is not None:
            return rest
    return text


def _level(text: str, found: re.Match[str], _parts: _Parts) -> str:
    end = found.end()
    return text[end + 2 :] if _RFC5424.match(text, end) else text[end:]


def _ctime(text: str, found: re.Match[str], parts: _Parts) -> str:
    parts.stamp = _dated((found[8], found[2], found[3]), found.group(4, 5, 6, 7), found[0]) or parts.stamp
    return text[found.end() :]


def _dated_line(text: str, found: re.Match[str], parts: _Parts) -> str:
    parts.stamp = _iso(found) or parts.stamp
    return _program(text, found.end(), parts)


def _unix(text: str, found: re.Match[str], parts: _Parts) -> str | None:
    if parts.stamp is not None:
        return None
    parts.stamp = Stamp(found[1], Clock.WALL, float(found[1]))
    return _program(text, found.end(), parts)


def _full(text: str, found: re.Match[str], parts: _Parts) -> str | None:
    return None if parts.stamp is not None else f"{found[1]} {text[found.end() :]}"


def _decoded(text: str, found: re.Match[str], parts: _Parts) -> str:
    parts.kernel = found[1] == "kern"
    return text[found.end() :]


def _host_and(text: str, _found: re.Match[str], parts: _Parts) -> str | None:
    on_boot = parts.program is None and parts.stamp is not None and parts.stamp.clock is Clock.BOOT
    return _program(text, 0, parts) if on_boot else None


def _syslog(text: str, found: re.Match[str], parts: _Parts) -> str | None:
    if parts.stamp is not None:
        return None
    parts.stamp = _dated((None, found[1], found[2]), found.group(3, 4, 5, 6), found[0])
    return _program(text, found.end(), parts)


def _cut(text: str, found: re.Match[str], _parts: _Parts) -> str:
    return text[found.end() :]


def _written(text: str, found: re.Match[str], parts: _Parts) -> str:
    parts.writer = parts.writer or found[1]
    return text[found.end() :]


def _kmsg(text: str, found: re.Match[str], parts: _Parts) -> str:
    parts.stamp = Stamp(f"{int(found[3]) / 1e6:.6f}", Clock.BOOT, int(found[3]) / 1e6)
    parts.kernel = int(found[1]) >> _FACILITY_SHIFT == 0
    return text[found.end() :]


def _since(text: str, found: re.Match[str], parts: _Parts) -> str:
    """Read what `dmesg -H` prints: only the first line of a moment has a date, to the minute."""
    if found[1] is not None:
        parts.stamp = _dated((None, found[1], found[2]), (found[3], found[4], "0"), found[0])
    parts.kernel = True
    return text[found.end() :]


def _boot(text: str, found: re.Match[str], parts: _Parts) -> str:
    # Behind a syslog date the kernel's own clock is the finer one.
    parts.stamp = Stamp(found[1], Clock.BOOT, float(found[1]))
    parts.caller = found[2] or parts.caller
    parts.kernel = True if parts.kernel is None else parts.kernel
    return text[found.end() :]


def _program(text: str, at: int, parts: _Parts) -> str:
    """Read "host program[pid]:" behind a date, where it stands there."""
    if (found := _RFC5424_PROGRAM.match(text, at)) is not None:
        parts.host, parts.program = found[1], found[2]
        parts.pid = int(found[3]) if found[3].isdigit() else None
        parts.kernel = found[2] in _PRINTK
        return text[found.end() :]
    found = _HOST_PROGRAM.match(text, at)
    if found is None:
        return text[at:]
    if found[1] is None and found[2] not in _PRINTK and found[3] is None:
        return text[at:]  # "ERROR:" and its like
    parts.host, parts.program = found[1] or "", found[2]
    parts.pid = None if found[3] is None else int(found[3])
    parts.kernel = found[2] in _PRINTK
    return text[found.end() :]


def _iso(found: re.Match[str]) -> Stamp | None:
    return _stamp(tuple(map(int, found.group(1, 2, 3))), found.group(4, 5, 6, 7), (found[0].strip("[]() :"), found[8]))


def _dated(day: tuple[str | None, ...], clock: tuple[str | None, ...], text: str) -> Stamp | None:
    """Make a time of year, month name and day. An unknown month leaves only a clock within the month."""
    year, month, date = day
    name = (month or "").rstrip(".").lower()
    number = _MONTHS.get(name) or _MONTHS.get(name[:3])
    words = text.strip("[] \t")
    if number is None or year is None:
        return Stamp(words, Clock.DAY, ((number or 0) * 31 + int(date or 0)) * 86400 + _seconds(clock))
    return _stamp((int(year), number, int(date or 1)), clock, (words, None))


def _seconds(clock: tuple[str | None, ...]) -> float:
    hour, minute, second, fraction = (*clock, None)[:4]
    whole = int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0)
    return whole + float(f"0.{fraction or 0}")


def _stamp(date: tuple[int, ...], clock: tuple[str | None, ...], words: tuple[str, str | None]) -> Stamp | None:
    text, zone = words
    try:
        year, month, day_of_month = date
        day = datetime(year, month, day_of_month, tzinfo=_zone(zone))
        return Stamp(text, Clock.WALL, (day + timedelta(seconds=_seconds(clock))).timestamp())
    except (ValueError, OverflowError):
        return None  # there is no such day


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(text[1:3]), minutes=int(text[-2:])))


_Reader = Callable[[str, re.Match[str], _Parts], str | None]
_Steps = tuple[tuple[re.Pattern[str], _Reader], ...]
_SIGNS: Final = ("[", "(", "<", " ")
_BY_SIGN: Final[_Steps] = (
    (_LEVEL, _level),
    (_SINCE, _since),
    (_BOOT, _boot),
    (_CTIME, _ctime),
    (_ISO, _dated_line),
    (_PREFIXED, _written),
)
_ANY: Final[_Steps] = ((_SYSLOG, _syslog), (_CRI, _cut), (_COMPOSE, _written), (_STERN, _written), (_ENDED, _written))
_BY_DIGIT: Final[_Steps] = ((_BOOT, _boot), (_KMSG, _kmsg), (_ISO, _dated_line), (_UNIX, _unix), *_ANY)
_BY_WORD: Final[_Steps] = ((_FULL, _full), (_DECODED, _decoded), (_HOST_AND, _host_and), *_ANY)
"""What may stand first, by the kind of the first letter; the first reader that takes it decides."""
