"""systemd's own lines in the journal and in `systemctl status`: how a unit's process ended, watchdogs, timeouts."""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.ends import end_fields
from sidecar.explain.patterns import Pattern
from sidecar.explain.values import Field, Role
from sidecar.verdict.values import Confidence, EndClass

_UNIT: Final = r"([\w@.:\\-]{1,256}\.(?:service|scope|slice|mount|socket))"


def _exited(_text: str, found: re.Match[str]) -> dict[str, Field]:
    how, number, name, unit = found[2], int(found[3]), found[4], found[1]
    signal = number if how in ("killed", "dumped") else None
    fields = end_fields(code=None if signal is not None else number, signal=signal)
    fields |= {"status": f"{number}/{name}" if name else str(number), "unit": unit, "keys": [f"unit:{unit}"]}
    return _unless_clean(fields)


def _main_pid(_text: str, found: re.Match[str]) -> dict[str, Field]:
    fields = end_fields(code=int(found[4]) if found[4] else None, signal=found[3])
    return _unless_clean({**fields, "pid": int(found[1]), "pids": [int(found[1])]})


def _unless_clean(fields: dict[str, Field]) -> dict[str, Field]:
    """An exit with code 0 is no failure: it counts only beside what else is said."""
    return {**fields, "role": Role.CONTEXT.value} if fields["exit_code"] == 0 else fields


def _watchdog(_text: str, found: re.Match[str]) -> dict[str, Field]:
    seconds = re.fullmatch(r"(\d{1,6})s", found[2] or "")
    return {
        "subtype": "systemd watchdog",
        "result": "watchdog",
        "limit": found[2],
        "limit_s": None if seconds is None else int(seconds[1]),
        "unit": found[1],
        "keys": [f"unit:{found[1]}"] if found[1] else [],
    }


def _killing(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {
        "pid": int(found[2]),
        "signal": found[3],
        "role": "context",
        "keys": [f"unit:{found[1]}"] if found[1] else [],
    }


def _result(_text: str, found: re.Match[str]) -> dict[str, Field]:
    result = found[2]
    fields: dict[str, Field] = {
        "result": result,
        "result_string": result,
        "keys": [f"unit:{found[1]}"] if found[1] else [],
    }
    if result in ("oom-kill", "watchdog"):
        oom = result == "oom-kill"
        fields |= {
            "end_class": (EndClass.CGROUP_OOM if oom else EndClass.HEALTH_CHECK).value,
            "confidence": (Confidence.LOW if oom else Confidence.HIGH).value,
            "role": "end" if oom else "cause",
            "summary": "systemd counted an OOM kill in the unit"
            if oom
            else "the unit missed its watchdog and was aborted",
        }
    return fields


def _row(subject: str, words: tuple[str, ...], start: str, summary: str, **more: object) -> Pattern:
    given: dict[str, object] = {"end_class": EndClass.UNKNOWN, "source": "systemd", **more}
    return Pattern(subject=subject, words=words, start=re.compile(start), summary=summary, **given)  # type: ignore[arg-type]


PATTERNS: Final = (
    _row(
        "watchdog",
        ("watchdog timeout",),
        rf"(?:{_UNIT}: )?Watchdog timeout \(limit ([\w ]{{1,20}})\)",
        "the service missed its watchdog and systemd aborted it",
        end_class=EndClass.HEALTH_CHECK,
        read=_watchdog,
        confidence=Confidence.HIGH,
    ),
    _row(
        "unit_timeout",
        ("operation timed out", "timed out. terminating", "timed out. killing"),
        rf"{_UNIT}: start operation timed out",
        "the service did not start in time and systemd stopped it",
        end_class=EndClass.HEALTH_CHECK,
        read=lambda _text, found: {"subtype": "systemd start timeout", "keys": [f"unit:{found[1]}"]},
    ),
    _row(
        "unit_stop",
        ("timed out. killing", "timed out. terminating", "timed out. skipping"),
        rf"{_UNIT}: State '(?:stop|final)-sig\w{{3,12}}' timed out",
        "systemd was told to stop the service, and killed what did not end in time",
        end_class=EndClass.DELETION,
        confidence=Confidence.MEDIUM,
        read=lambda _text, found: {"subtype": "systemd stop timeout", "keys": [f"unit:{found[1]}"]},
        missing=("who stopped the unit: the lines before, or the audit log",),
    ),
    _row(
        "unit_killing",
        ("killing process",),
        rf"(?:{_UNIT}: )?Killing process (\d{{1,10}}) \(.{{0,64}}?\) with signal (SIG[A-Z]+)",
        "systemd sent a signal",
        read=_killing,
        role=Role.CONTEXT,
    ),
    _row(
        "unit_exit",
        ("process exited, code=",),
        rf"{_UNIT}: (?:Main|Control) process exited, code=(exited|killed"
        rf"|dumped), status=(\d{{1,3}})(?:/([\w+-]{{1,20}}))?",
        "the unit's main process ended",
        read=_exited,
        role=Role.END,
    ),
    _row(
        "unit_exit",
        ("main pid:",),
        r"Main PID: (\d{1,10}) \(code=(exited|killed|dumped), (?:signal=([A-Z0-9]{2,10})|status=(\d{1,3}))",
        "the unit's main process ended",
        read=_main_pid,
        role=Role.END,
    ),
    _row(
        "unit_result",
        ("failed with result", "(result:", "result=oom-kill", "result=watchdog"),
        rf"(?:{_UNIT}: Failed with|Active: failed \(Result:|^Result=) ?(?:result )?'?([a-z-]{{3,20}})'?",
        "the unit failed",
        read=_result,
        role=Role.CONSEQUENCE,
    ),
    _row(
        "unit_oom",
        ("killed by the oom killer", "oom killer killed some"),
        rf"{_UNIT}: (?:A process of this unit has been killed by the OOM killer"
        rf"|The kernel OOM killer killed some processes in this unit)",
        "systemd saw an OOM kill in the unit",
        end_class=EndClass.CGROUP_OOM,
        confidence=Confidence.LOW,
        role=Role.END,
        read=lambda _text, found: {"unit": found[1], "oom_seen": True, "keys": [f"unit:{found[1]}"]},
        missing=("whether it was the unit's limit or the node's memory: the kernel log at that moment",),
    ),
)
