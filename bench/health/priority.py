"""Judges, sidecars and servers go before what else runs: a verdict on a server is not one on its neighbours."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_NICENESS: Final = -10


def put_first(pid: int) -> None:
    """Put a process that leads a session of its own first, with all that it will start.

    The scheduler shares by session where it has autogroups, whatever niceness says between two of them (sched(7)).
    """
    with contextlib.suppress(OSError):  # not everybody may, and not every kernel has autogroups
        os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICENESS))
