"""The peer of the sidecar: a loop that reads its kernel files and does nothing with them.

    python -m bench.sidecar.bare PERIOD_SECONDS all|glance PID...

Files are kept open and read with one `pread` each: no parsing, no values, no second read for the end of the file. So it
is the floor for a daemon in Python that reads
    all      every file of every model (by its main process PID) and of the node, each period;
    glance   as the sidecar does while nothing happens: memory.stat of the level with a limit each period, all files and
             the black box once a second.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import count

from guard.kernel.reader import KeptFile, Reader
from guard.link.handover import Who, gather
from guard.link.protocol import Role
from guard.model import LifeId
from sidecar.collect.node import FILES

ROOM_BYTES = 64 << 10
UNREAD = ("pidfd", "proc/statm")
GLANCE = "levels/0/memory.stat"


def open_model(pid: int) -> dict[str, int]:
    """Open the files of a model that the sidecar reads, by the names of the hand-over."""
    who = Who(name="", life=LifeId("", pid, 0, ""), parent_session=None, command="", role=Role.GUARD)
    offer = gather(Reader(), who, pid=pid)
    by_name = dict(zip(offer.hello.descriptors, offer.descriptors, strict=True))
    return {name: fd for name, fd in by_name.items() if name not in UNREAD}


def open_node() -> list[int]:
    """Open the node's files."""
    kept = (Reader().keep(path) for path in FILES)
    return [file.fd for file in kept if isinstance(file, KeptFile)]


def read(descriptors: Iterable[int]) -> None:
    """Read each once."""
    for fd in descriptors:
        os.pread(fd, ROOM_BYTES, 0)


def main(period_seconds: float, what: str, pids: Sequence[int]) -> None:
    """Read for ever."""
    models = [open_model(pid) for pid in pids]
    full = [fd for model in models for fd in model.values()] + open_node()
    lean = full if what == "all" else [model[GLANCE] for model in models]
    every = round(1 / period_seconds)
    started = time.monotonic()
    for tick in count():
        read(lean if tick % every else full)
        time.sleep(max(0.0, started + (tick + 1) * period_seconds - time.monotonic()))


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], [int(pid) for pid in sys.argv[3:]])
