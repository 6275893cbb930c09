"""Exit codes and signals: what they say, and what they do not."""

from __future__ import annotations

import signal as signals
from typing import Final

from sidecar.explain.values import Field
from sidecar.verdict.values import Confidence, EndClass

_SHELL: Final = 128  # shells and runtimes report a signal N as 128 + N
_STOPS: Final = (signals.SIGTERM, signals.SIGINT, signals.SIGHUP, signals.SIGQUIT)
_CRASHES: Final = (
    *(signals.SIGSEGV, signals.SIGABRT, signals.SIGFPE, signals.SIGILL),
    *(signals.SIGTRAP, signals.SIGSYS, signals.SIGXCPU, signals.SIGXFSZ),
)
_LAST_SIGNAL: Final = 64
_BUS: Final = int(signals.SIGBUS)
_KILL: Final = int(signals.SIGKILL)


def signal_name(number: int) -> str:
    """Name a signal: SIGKILL, or "signal 40"."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_number(name: str) -> int | None:
    """Give the number of "SIGKILL", "KILL" or "9"."""
    if name.isdigit():
        return int(name)
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    return int(signals.Signals[full]) if full in signals.Signals.__members__ else None


def end_fields(*, code: int | None, signal: int | str | None = None) -> dict[str, Field]:
    """Give class, confidence and fields of an end. 137 proves nothing; 0 is no failure."""
    number = signal_number(signal) if isinstance(signal, str) else signal
    if number is None and code is not None:
        number = _signal_of(code)
    fields: dict[str, Field] = {
        "exit_code": code,
        "signal": None if number is None else signal_name(number),
        "signal_number": number,
        "exit_code_equiv": None if number is None else _SHELL + number,
    }
    end_class, confidence = _judge(code, number)
    return {**fields, "end_class": end_class.value, "confidence": confidence.value, "summary": words(code, number)}


def words(code: int | None, number: int | None) -> str:
    """Say an end in words."""
    if number is None:
        return "it ended in a way that is not said" if code is None else f"it ended by itself with exit code {code}"
    shown = "" if code is None else f" (exit code {code})"
    return f"it was ended by {signal_name(number)}{shown}"


def _signal_of(code: int) -> int | None:
    """Negative codes are Python's for signals; above 128 they are the shell's."""
    number = -code if code < 0 else code - _SHELL
    return number if 0 < number <= _LAST_SIGNAL else None


def _judge(code: int | None, number: int | None) -> tuple[EndClass, Confidence]:
    if number is None:
        if code is None:
            return EndClass.UNKNOWN, Confidence.LOW
        return EndClass.APPLICATION_EXIT, Confidence.MEDIUM
    if number == _BUS:
        return EndClass.SHM_EXHAUSTED, Confidence.MEDIUM
    if number in _CRASHES:
        return EndClass.CRASH_SIGNAL, Confidence.MEDIUM
    if number in _STOPS:
        return EndClass.EXTERNAL_KILL, Confidence.LOW
    return EndClass.UNKNOWN, Confidence.LOW
