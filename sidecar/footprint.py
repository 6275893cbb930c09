"""Staying small and in memory: a sidecar must answer while the node has none to give.

Measured (Python 3.11, glibc 2.36): see docs; threads come and go, and each malloc arena of theirs keeps what it once
held, so one arena for all is enough for a daemon whose threads mostly wait.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8  # malloc.h of glibc
_MCL_CURRENT: Final = 1  # sys/mman.h
_MCL_ONFAULT: Final = 4


def keep_small() -> None:
    """Use one malloc arena (glibc alone has the switch)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def stay_in_memory() -> bool:
    """Lock what is mapped and touched; tell whether it was allowed (CAP_IPC_LOCK, or memlock above our size)."""
    mlockall = getattr(ctypes.CDLL(None, use_errno=True), "mlockall", None)
    return mlockall is not None and mlockall(_MCL_CURRENT | _MCL_ONFAULT) == 0
