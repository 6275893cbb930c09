"""/proc/vmstat: counters and page counts by the kernel's names (mm/vmstat.c)."""

from __future__ import annotations

from guard.kernel.flat import parse_table as parse

__all__ = ["parse"]
