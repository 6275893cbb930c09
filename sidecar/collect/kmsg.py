"""The kernel log, where it may be read: /dev/kmsg without blocking, a bounded tail of it in memory.

Ordinary containers have no /dev/kmsg, and kernel.dmesg_restrict=1 (Debian's default) needs CAP_SYSLOG: then the log is
unknown, and its silence proves nothing. Even where it is read, OOM output is rate-limited by the kernel.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from typing import Final

from guard.kernel import kmsg
from guard.kernel.reader import KeptFile, Reader, unknown_from
from guard.kernel.values import KmsgRecord
from guard.model import Known, Reading, Unknown

_RECORD_LIMIT: Final = 8 << 10  # bytes; the kernel gives EINVAL to a buffer that is too small, and never prints more
_KEPT_RECORDS: Final = 1000  # one OOM kill prints about 100 lines (measured on 6.1, 6.12 and 6.18)
_AT_ONCE: Final = 200  # records a wake-up, so that a storm of messages does not hold up the tick


class KernelLog:
    """The tail of the kernel log. `start` needs a running loop; every method is quick and never blocks."""

    def __init__(self, reader: Reader, path: str = "/dev/kmsg") -> None:
        self._path = path
        self._file: KeptFile | Unknown = reader.keep(path)
        self._records: deque[KmsgRecord] = deque(maxlen=_KEPT_RECORDS)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def state(self) -> Reading[int]:
        """How many records are held, or why none can be read."""
        return self._file if isinstance(self._file, Unknown) else Known(len(self._records))

    def start(self) -> None:
        """Read what is there, from the oldest record on, and wake up for what comes."""
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

    def since(self, boot_seconds: float) -> Reading[tuple[KmsgRecord, ...]]:
        """Give the records from this time after boot on; the kernel stamps them close to CLOCK_MONOTONIC."""
        self._drain()
        if isinstance(self._file, Unknown):
            return self._file
        return Known(tuple(r for r in self._records if r.timestamp_us >= boot_seconds * 1e6))

    def _drain(self) -> None:
        file = self._file
        for _ in range(_AT_ONCE):
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
                self._records.append(record.value)

    def _stop(self, why: Unknown) -> None:
        self.close()
        self._file = why
