"""The kernel log, where it may be read: /dev/kmsg without blocking, a bounded tail of it in memory.

Ordinary containers have no /dev/kmsg, and kernel.dmesg_restrict=1 (Debian's default) needs CAP_SYSLOG: then the log is
unknown, and its silence proves nothing. Even where it is read, OOM output is rate-limited by the kernel.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from guard.kernel import kmsg
from guard.kernel.reader import KeptFile, Reader, unknown_from
from guard.kernel.values import KmsgRecord
from guard.model import Known, Reading, Unknown
from sidecar.clock import Clock

_RECORD_LIMIT: Final = 8 << 10  # bytes; the kernel gives EINVAL to a buffer that is too small, and never prints more
_KEPT_RECORDS: Final = 500  # one OOM kill prints about 100 lines (measured on 6.1, 6.12 and 6.18)
_AT_START: Final = 20_000  # records; the largest ring distributions set up, 16 MiB, holds about as many lines
_DRIFT: Final = 500e-6  # the most that adjtimex(2) slews by; clocks drift by a tenth of it
_LATE_SECONDS: Final = 30.0  # nobody is starved for so long: a clock has jumped, as in a restored virtual machine
_AT_ONCE: Final = 200  # records a wake-up, so that a storm of messages does not hold up the tick


@dataclass(slots=True)
class Lag:
    """By how much stamps lag behind CLOCK_MONOTONIC: what the record that was read soonest after its stamp says.

    A record read late, by a process that was starved of CPU, so keeps its time. `put_right` takes seconds.
    """

    _lag_s: float | None = None
    _at_s: float = 0.0

    def put_right(self, stamp_s: float, now_s: float) -> float:
        """Give the time of a record that is read now."""
        seen_s, known_s = now_s - stamp_s, self._lag_s
        drifted_s = seen_s if known_s is None else min(seen_s, known_s + (now_s - self._at_s) * _DRIFT)
        self._lag_s = drifted_s if seen_s - drifted_s <= _LATE_SECONDS else seen_s
        self._at_s = now_s
        return stamp_s + self._lag_s


class KernelLog:
    """The tail of the kernel log. `start` needs a running loop; every method is quick and never blocks."""

    def __init__(self, reader: Reader, clock: Clock, path: str = "/dev/kmsg") -> None:
        self._clock = clock
        self._path = path
        self._file: KeptFile | Unknown = reader.keep(path)
        self._records: deque[KmsgRecord] = deque(maxlen=_KEPT_RECORDS)
        self._lag = Lag()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def state(self) -> Reading[int]:
        """How many records are held, or why none can be read."""
        return self._file if isinstance(self._file, Unknown) else Known(len(self._records))

    def start(self) -> None:
        """Read what is there, from the oldest record on, and wake up for what comes."""
        self._drain(old=True)
        if isinstance(self._file, KeptFile):
            self._loop = asyncio.get_running_loop()
            try:
                self._loop.add_reader(self._file.fd, self._drain)
            except OSError as exc:  # EPERM: not a device that can be polled (a plain file in tests and odd containers)
                self._stop(unknown_from(exc, self._path))

    def close(self) -> None:
        """Stop reading and close the device."""
        if isinstance(self._file, KeptFile):
            if self._loop is not None:
                self._loop.remove_reader(self._file.fd)
            self._file.close()

    def since(self, monotonic_s: float) -> Reading[tuple[KmsgRecord, ...]]:
        """Give the records of this time or later, their stamps put on CLOCK_MONOTONIC.

        The kernel's own stamps come from a clock that nobody disciplines and are off by seconds after some days (printk
        uses local_clock). Only records from before `start` have no other time.
        """
        self._drain()
        if isinstance(self._file, Unknown):
            return self._file
        return Known(tuple(record for record in self._records if record.timestamp_us >= monotonic_s * 1e6))

    def _drain(self, *, old: bool = False) -> None:
        file, now_s = self._file, self._clock.now().monotonic_s
        for _ in range(_AT_START if old else _AT_ONCE):
            if isinstance(file, Unknown):
                return
            data = file.read_next(_RECORD_LIMIT)
            if isinstance(data, Unknown):
                if data.errno == errno.EPIPE:  # the ring overran us; the next read gives the oldest that is left
                    continue
                self._stop(data)
                return
            if not data.value:
                return
            record = kmsg.parse_record(data.value, self._path)
            if isinstance(record, Known):
                stamp_s = record.value.timestamp_us / 1e6
                at_s = min(stamp_s, now_s) if old else self._lag.put_right(stamp_s, now_s)
                self._records.append(replace(record.value, timestamp_us=round(at_s * 1e6)))

    def _stop(self, why: Unknown) -> None:
        self.close()
        self._file = why
