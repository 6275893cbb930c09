"""One process of the model, read through kept descriptors; whether it lives is what its pidfd says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from guard.box import format as box_format
from guard.box.reader import parse_box
from guard.kernel import procfs
from guard.kernel.reader import KeptFile, Reader
from guard.kernel.values import ProcIo, ProcStat, ProcStatus
from guard.model import BoxState, Known, Reading, Unknown, Why
from sidecar.clock import began_s
from sidecar.collect import node_pid
from sidecar.quiet import Base
from sidecar.sample import Instant, ProcessSample
from sidecar.sight.seen import SeenProcess

T = TypeVar("T")

_LIMIT: Final = 16 << 10  # bytes; status is about 1.5 KiB
_OPERATIONS: Final = slice(
    box_format.OPERATIONS.offset,
    box_format.OPERATIONS.offset + box_format.OPERATIONS.count * box_format.OPERATIONS.stride,
)
_BOX_LIMIT: Final = 64 << 10  # bytes; the largest a black box may be


class ProcessReader:
    """Reads one process. After its end the last readings stay; the box is still read, as it outlives its writer."""

    def __init__(self, seen: SeenProcess) -> None:
        self.seen = seen
        self.main = False
        self.alive = True
        self.ended: Instant | None = None
        """When its end was noticed and latched; set by who deals with ends."""
        self.base: Base | None = None
        """What its end is compared with, at the earliest; set by who deals with ends."""
        self.began_s = began_s(seen.life.start_ticks)
        """When it began, on CLOCK_MONOTONIC."""
        self.node_pid = node_pid.of(Reader(), seen.pidfd)
        """Its pid in the initial PID namespace, as the kernel log gives it; None where that cannot be known."""
        self._sample: ProcessSample | None = None
        self._box_hash = hash(b"")  # hashes of what was parsed: kept boxes would be 60 KiB a process
        self._operations_hash = hash(b"")
        self._status: Reading[ProcStatus] = Unknown(Why.NOT_SAMPLED, "/proc/PID/status")
        self._stat: Reading[ProcStat] = Unknown(Why.NOT_SAMPLED, "/proc/PID/stat")
        self._io: Reading[ProcIo] = Unknown(Why.NOT_SAMPLED, "/proc/PID/io")
        self._box: Reading[BoxState] = Unknown(Why.MISSING, "black box")

    def read(self, *, full: bool) -> ProcessSample:
        """Read now. A lean read looks only whether an operation in the black box has moved."""
        if not full and self._sample is not None:
            if self._operations_moved():
                self._sample = replace(self._sample, box=self._box)
            return self._sample
        if self.alive and self.seen.pidfd is None:
            self.alive = not _is_gone(self._file("stat"))
        if self.alive:
            self._read_proc()
        self._read_box()
        self._sample = ProcessSample(
            life=self.seen.life,
            main=self.main,
            alive=self.alive,
            status=self._status,
            stat=self._stat,
            io=self._io,
            box=self._box,
        )
        return self._sample

    def last_sample(self) -> ProcessSample:
        """Give what was read last; read now if nothing was yet."""
        return self._sample or self.read(full=True)

    def read_box(self) -> Reading[BoxState]:
        """Read the black box alone."""
        self._read_box()
        return self._box

    def _read_proc(self) -> None:
        # A reading that was good is not replaced by ESRCH: between death and pidfd wake-up /proc is already empty.
        stat = self._file("stat")
        if _is_gone(stat):
            return
        self._stat = _parsed(stat, procfs.parse_stat, "stat")
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
        else:
            self._parse_box(data.value, box.where)

    def _operations_moved(self) -> bool:
        """Read the box, and parse it if an operation moved; beats, which move with every token, can wait."""
        box: KeptFile | None = self.seen.box
        data = None if box is None else box.read(_BOX_LIMIT)
        if box is None or not isinstance(data, Known) or hash(data.value[_OPERATIONS]) == self._operations_hash:
            return False
        self._parse_box(data.value, box.where)
        return True

    def _parse_box(self, data: bytes, where: str) -> None:
        if hash(data) != self._box_hash:
            self._box_hash, self._operations_hash = hash(data), hash(data[_OPERATIONS])
            self._box = parse_box(data, where)


def _parsed(data: Reading[bytes], parse: Callable[[bytes, str], Reading[T]], name: str) -> Reading[T]:
    return data if isinstance(data, Unknown) else parse(data.value, f"/proc/PID/{name}")


def _is_gone(reading: Reading[object]) -> bool:
    return isinstance(reading, Unknown) and reading.why is Why.GONE
