"""The one exception that the guard raises into the host, and only where the host asked for it."""

from __future__ import annotations


class WouldNotFit(MemoryError):  # noqa: N818 - reads as a statement: `except WouldNotFit`
    """A load was not begun because it would not fit. The text shows the arithmetic."""
