"""The peers of the sidecar: loops that read its kernel files and do nothing with them.

    python -m bench.sidecar.bare PERIOD_SECONDS same|all PID...

Files are kept open and read whole, as the sidecar reads them: no parsing, no values. So it is the floor for a daemon in
Python that reads
    same     what the sidecar reads, when it reads it: usage of each model each period; where that has grown, the files
             of a close look and the black box as well; once a second everything;
    all      everything, each period.
Everything is every file of every model (by its main process PID), of the node, and of the loop itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from guard.kernel.reader import KeptFile, Reader
from guard.link.handover import Who, gather
from guard.link.protocol import Role
from guard.model import LifeId
from sidecar.collect.node import FILES

SAME: Final = "same"
ALL: Final = "all"
_UNREAD: Final = ("pidfd", "proc/statm")
_OWN_LEVEL: Final = "levels/0/memory."  # the only one with a limit
_USAGE: Final = ("current", "usage_in_bytes")
_CLOSE: Final = ("events", "oom_control", "stat", "max", "high", "limit_in_bytes")
_GROWN_BYTES: Final = 256 << 10


class Model:
    """The files of one model, and how much it used when it was last looked at."""

    def __init__(self, pid: int) -> None:
        files = _open(pid)
        self._usage = _named(files, _USAGE)[0]
        self._close = (*_named(files, _CLOSE), self._usage, files["box"])
        self._all = (self._usage, *files.values())
        self._looked_at_bytes = 0

    def glance(self) -> None:
        """Read usage, and what stands close to it where it has grown."""
        used_bytes = self._usage.read_number() or 0
        if used_bytes >= self._looked_at_bytes + _GROWN_BYTES:
            self._looked_at_bytes = used_bytes
            read(self._close)

    def look(self) -> None:
        """Read everything."""
        self._looked_at_bytes = self._usage.read_number() or 0
        read(self._all)


def read(files: Iterable[KeptFile]) -> None:
    """Read each whole."""
    for file in files:
        file.read()


def main(period_seconds: float, what: str, pids: Sequence[int]) -> None:
    """Read for ever."""
    models = [Model(pid) for pid in pids]
    kept = (Reader().keep(path) for path in (*FILES, "/proc/self/statm"))
    node = [file for file in kept if isinstance(file, KeptFile)]
    every = 1 if what == ALL else round(1 / period_seconds)
    started = time.monotonic()
    for tick in count():
        if tick % every:
            for model in models:
                model.glance()
        else:
            for model in models:
                model.look()
            read(node)
        time.sleep(max(0.0, started + (tick + 1) * period_seconds - time.monotonic()))


def _open(pid: int) -> dict[str, KeptFile]:
    """Open the files of a model that the sidecar reads, by the names of the hand-over."""
    who = Who(name="", life=LifeId("", pid, 0, ""), parent_session=None, command="", role=Role.GUARD)
    offer = gather(Reader(), who, pid=pid)
    by_name = dict(zip(offer.hello.descriptors, offer.descriptors, strict=True))
    mapped = Path(f"/proc/{pid}/maps").read_text().splitlines()
    box = Reader().keep(next(line.split(maxsplit=5)[5] for line in mapped if line.endswith(".box")))
    assert isinstance(box, KeptFile), box
    return {name: KeptFile(fd, name) for name, fd in by_name.items() if name not in _UNREAD} | {"box": box}


def _named(files: dict[str, KeptFile], names: Sequence[str]) -> list[KeptFile]:
    return [files[_OWN_LEVEL + name] for name in names if _OWN_LEVEL + name in files]


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], [int(pid) for pid in sys.argv[3:]])
