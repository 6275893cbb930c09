"""What may be registered to hear of pressure. Light: this is imported with the package."""

from __future__ import annotations

_NEVER_RUNS = 0x20 | 0x80 | 0x200
"""Flags of code that gives a generator or a coroutine instead of running (`inspect.CO_*`; inspect is not light)."""


def check_callback(callback: object) -> None:
    """Raise `TypeError` for what cannot be called, or would not run when it is."""
    if not callable(callback):
        raise TypeError(f"what hears of pressure is a function, not {callback!r}")
    if getattr(getattr(callback, "__code__", None), "co_flags", 0) & _NEVER_RUNS:
        raise TypeError(
            f"{getattr(callback, '__qualname__', callback)} would not run: it is called in a thread that has no loop. "
            "Register a plain function that calls asyncio.run_coroutine_threadsafe(..., loop)"
        )


def check_cooldown(seconds: float | None) -> None:
    """Raise `ValueError` for what is no number of seconds."""
    if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
        raise ValueError(f"cooldown_seconds is a number of seconds, not {seconds!r}")
