"""One process of the model, read through kept descriptors; whether it lives is what its pidfd says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from guard.box.reader import parse_box
from guard.kernel import procfs
from guard.kernel.reader import KeptFile
from guard.kernel.values import ProcIo, ProcStat, ProcStatus
from guard.model import BoxState, Reading, Unknown, Why
from sidecar.sample import Instant, ProcessSample
from sidecar.sight.seen import SeenProcess

T = TypeVar("T")

_LIMIT: Final = 16 << 10  # bytes; status is about 1.5 KiB
_BOX_LIMIT: Final = 64 << 10  # bytes; the largest a black box may be


class ProcessReader:
    """Reads one process. After its end the last readings stay; the box is still read, as it outlives its writer."""

    def __init__(self, seen: SeenProcess) -> None:
        self.seen = seen
        self.main = False
        self.alive = True
        self.ended: Instant | None = None
        """When its end was noticed and latched; set by who deals with ends."""
        self._box_bytes = b""
        self._status: Reading[ProcStatus] = Unknown(Why.NOT_SAMPLED, "/proc/PID/status")
        self._stat: Reading[ProcStat] = Unknown(Why.NOT_SAMPLED, "/proc/PID/stat")
        self._io: Reading[ProcIo] = Unknown(Why.NOT_SAMPLED, "/proc/PID/io")
        self._box: Reading[BoxState] = Unknown(Why.MISSING, "black box")

    def read(self, *, full: bool) -> ProcessSample:
        """Read now; a lean read leaves `status` and `io` as they were at the last full one."""
        if self.alive and self.seen.pidfd is None:
            self.alive = not _is_gone(self._file("stat"))
        if self.alive:
            self._read_proc(full=full)
        self._read_box()
        return ProcessSample(
            life=self.seen.life,
            main=self.main,
            alive=self.alive,
            status=self._status,
            stat=self._stat,
            io=self._io,
            box=self._box,
        )

    def read_box(self) -> Reading[BoxState]:
        """Read the black box alone."""
        self._read_box()
        return self._box

    def _read_proc(self, *, full: bool) -> None:
        # A reading that was good is not replaced by ESRCH: between death and pidfd wake-up /proc is already empty.
        stat = self._file("stat")
        if _is_gone(stat):
            return
        self._stat = _parsed(stat, procfs.parse_stat, "stat")
        if full:
            self._status = _parsed(self._file("status"), procfs.parse_status, "status")
            self._io = _parsed(self._file("io"), procfs.parse_io, "io")

    def _file(self, name: str) -> Reading[bytes]:
        file = self.seen.files.get(name)
        return Unknown(Why.MISSING, f"/proc/PID/{name}") if file is None else file.read(_LIMIT)

    def _read_box(self) -> None:
        box: KeptFile | None = self.seen.box
        if box is None:
            return
        data = box.read(_BOX_LIMIT)
        if isinstance(data, Unknown):
            self._box = data if isinstance(self._box, Unknown) else self._box
        elif data.value != self._box_bytes:
            self._box_bytes = data.value
            self._box = parse_box(data.value, box.where)


def _parsed(data: Reading[bytes], parse: Callable[[bytes, str], Reading[T]], name: str) -> Reading[T]:
    return data if isinstance(data, Unknown) else parse(data.value, f"/proc/PID/{name}")


def _is_gone(reading: Reading[object]) -> bool:
    return isinstance(reading, Unknown) and reading.why is Why.GONE
