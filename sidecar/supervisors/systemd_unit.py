"""How a systemd unit ended: from `systemctl show` and from systemd's own lines in the journal. Pure.

Theory (systemd 252, tried)
    * `show` tells the last end until the next start, which with Restart= may come 100 ms later, and nothing of a unit
      that was stopped and unloaded; the journal keeps both. ExecMainPID stays that of the dead process.
    * Of a process that left well, or by the SIGTERM of a stop, the journal says no code but "Deactivated successfully".
    * Times of `show` are CLOCK_MONOTONIC in microseconds, those of the journal microseconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from sidecar.explain.messages.killers import PATTERNS as KILLERS
from sidecar.explain.messages.systemd import PATTERNS as SYSTEMD
from sidecar.explain.patterns import MessageParser
from sidecar.explain.values import Line, Sign
from sidecar.supervisors.values import Container, Subject
from sidecar.verdict.supervisor_values import SupervisorEnd, SupervisorWord, SupervisorWordKind
from sidecar.verdict.values import EndClass

PROPERTIES: Final = (
    "Id,LoadState,ActiveState,Result,NRestarts,ExecMainPID,ExecMainCode,ExecMainStatus,"
    "ExecMainStartTimestampMonotonic,ExecMainExitTimestampMonotonic"
)
FIELDS: Final = "MESSAGE,MESSAGE_ID"
# From sd-messages.h: a unit is started, is being stopped, its process exited, it was deactivated with success.
_STARTED: Final = "39f53479d3a045ac8e11786248231fbf"
_STOPPING: Final = "de5b426a63be47a7b6ac3eaac82e2f6f"
_EXITED_ID: Final = "98e322203f7a4ed290d09fe03c09fe15"
_SUCCESS: Final = "7ad2d189f7e94e70a38c781354912448"
_CLIENT: Final = re.compile(r"Sent signal (SIG[A-Z0-9]+) to main process .* on client request")
_EXITED: Final = "1"  # CLD_EXITED (waitid(2)); killed and dumped follow
_UNIT: Final = re.compile(r"[\w@.:\\-]{1,256}\.service")
_KINDS: Final = {
    "watchdog": SupervisorWordKind.WATCHDOG,
    "unit_timeout": SupervisorWordKind.STARTUP_KILL,
}
_CLASSES: Final = {EndClass.USERSPACE_OOM: SupervisorWordKind.USERSPACE_OOM}


class Record(msgspec.Struct, rename={"message": "MESSAGE", "message_id": "MESSAGE_ID", "at": "__REALTIME_TIMESTAMP"}):
    """One entry of `journalctl --output=json` by systemd about the unit."""

    message: str | list[int] | None = None
    message_id: str | None = None
    at: str = "0"

    @property
    def at_wall_s(self) -> float:
        """Seconds since 1970."""
        return int(self.at) / 1e6 if self.at.isdigit() else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Now, on both clocks, to put the times of `show` on the wall."""

    monotonic_s: float
    wall_s: float

    def wall(self, monotonic_us: int | None) -> float | None:
        """Put a time in microseconds on the wall clock; 0 is none."""
        return None if not monotonic_us else self.wall_s - self.monotonic_s + monotonic_us / 1e6


def unit_of(subject: Subject, names: Mapping[str | None, str]) -> str | None:
    """Name the unit of a model: by the settings, else by the path of its cgroup. None: in none of the system's."""
    name = names.get(subject.model, names.get(None))
    if name is not None:
        return name if "." in name else f"{name}.service"
    path = subject.groups[0] if subject.groups else ""
    if "/user@" in path:  # a unit of a user's own systemd
        return None
    return next((part for part in reversed(path.split("/")) if _UNIT.fullmatch(part)), None)


def properties_of(text: str) -> dict[str, str]:
    """Read what `systemctl show` prints."""
    return {name: value for name, equals, value in (line.partition("=") for line in text.splitlines()) if equals}


def records_of(data: bytes) -> list[Record]:
    """Read what `journalctl` prints, passing over what is not understood."""
    records = []
    for line in data.splitlines():
        try:
            records.append(msgspec.json.decode(line, type=Record))
        except msgspec.MsgspecError:
            continue
    return records


def unit(show: Mapping[str, str], journal: Sequence[Record], now: Moment) -> Container | None:
    """Put both together; None where systemd knows no such unit."""
    if show.get("LoadState") in (None, "not-found"):
        return None
    return Container(
        supervisor="systemd",
        name=show.get("Id", ""),
        shares=True,
        running=show.get("ActiveState") == "active",
        restart_count=_number(show.get("NRestarts")),
        end=_end(show, journal, now),
    )


def _end(show: Mapping[str, str], journal: Sequence[Record], now: Moment) -> SupervisorEnd | None:
    """Give the last end: by the journal, which keeps it, else by `show` as long as it speaks of it."""
    life = _last_life(journal)
    signs = _signs(life)
    result = next((str(sign.fields["result"]) for sign, _ in signs if sign.fields.get("result")), None)
    left = next((sign for sign, _ in signs if sign.subject == "unit_exit"), None)
    if life:
        code, number = (None, None) if left is None else (left.fields["exit_code"], left.fields["signal_number"])
        if code is not None:  # 137 stands for a signal elsewhere; systemd says which of the two it was
            number = None
        finished = next(one.at_wall_s for one in life if one.message_id in (_EXITED_ID, _SUCCESS))
    elif (shown := _shown(show, now)) is not None:
        code, number, finished = shown
        result = show.get("Result")
    else:
        return None
    words = _words(signs, life, result)
    client = next((found[0] for one in life if (found := _CLIENT.search(str(one.message))) is not None), None)
    return SupervisorEnd(
        source=f"systemd, unit {show.get('Id')}",
        exit_code=code if isinstance(code, int) else None,
        signal=number if isinstance(number, int) else None,
        oom_killed=True if _killed_by_kernel(signs, words, result) else None,
        reason=None if result == "success" else result,
        message=client,
        finished_wall_s=finished,
        restart_count=_number(show.get("NRestarts")),
        words=words,
    )


def _killed_by_kernel(signs: Sequence[tuple[Sign, float]], words: Sequence[SupervisorWord], result: str | None) -> bool:
    """Tell an OOM kill of the kernel: "oom-kill" is the result of a unit that systemd-oomd killed too (252, tried)."""
    told = any(sign.subject == "unit_oom" for sign, _ in signs)
    return told or (result == "oom-kill" and all(word.kind is not SupervisorWordKind.USERSPACE_OOM for word in words))


def _shown(show: Mapping[str, str], now: Moment) -> tuple[int | None, int | None, float] | None:
    """Give exit code, signal and time of the last end; None where the unit was started again since, or never ended."""
    exited = now.wall(_number(show.get("ExecMainExitTimestampMonotonic")))
    if exited is None:
        return None
    status = _number(show.get("ExecMainStatus"))
    return (status, None, exited) if show.get("ExecMainCode") == _EXITED else (None, status, exited)


def _signs(life: Sequence[Record]) -> list[tuple[Sign, float]]:
    """Give what systemd's lines say, each with its time."""
    parser = MessageParser((*SYSTEMD, *KILLERS))
    for number, record in enumerate(life):
        text = record.message if isinstance(record.message, str) else ""
        parser.feed(Line(file="journal", number=number, text=text, whole=text, program="systemd"))
    return [(sign, life[sign.line].at_wall_s) for sign in parser.finish()]


def _last_life(journal: Sequence[Record]) -> Sequence[Record]:
    """Give the lines of the last life that ended: those behind its start, up to the next one."""
    ends = [at for at, one in enumerate(journal) if one.message_id in (_EXITED_ID, _SUCCESS)]
    if not ends:
        return ()
    starts = [at for at, one in enumerate(journal) if one.message_id == _STARTED]
    first = max((at for at in starts if at < ends[-1]), default=0)
    behind = min((at for at in starts if at > ends[-1]), default=len(journal))
    return journal[first:behind]


def _words(
    signs: Sequence[tuple[Sign, float]], life: Sequence[Record], result: str | None
) -> tuple[SupervisorWord, ...]:
    words = [
        SupervisorWord(kind=kind, text=sign.summary, at_wall_s=at)
        for sign, at in signs
        if (kind := _KINDS.get(sign.subject) or _CLASSES.get(sign.end_class)) is not None
    ]
    if result == "watchdog" and not any(word.kind is SupervisorWordKind.WATCHDOG for word in words):
        words.append(SupervisorWord(kind=SupervisorWordKind.WATCHDOG, text="the unit missed its watchdog"))
    stopping = next((one for one in life if one.message_id == _STOPPING), None)
    if stopping is not None:
        text = f"systemd was asked to stop or restart the unit ({stopping.message})"
        words.append(SupervisorWord(kind=SupervisorWordKind.DELETION, text=text, at_wall_s=stopping.at_wall_s))
    return tuple(words)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
