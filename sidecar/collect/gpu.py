"""The GPUs, read beside the tick: NVML calls take milliseconds, and hang for ever when a card or its driver does.

One daemon thread talks to the driver. The tick takes what it found last, and after `DEADLINE_SECONDS` of silence the
reading is unknown and names the call that hangs. A thread that hangs cannot be ended; no second one is started beside
it, and once the call returns it goes on.

Without the library there is no thread and no binding, so a sidecar beside a CPU server pays nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from guard.model import Reading, Unknown, Why
from sidecar.clock import Clock
from sidecar.collect.nvml import Session, Xids, library_missing
from sidecar.sample import NO_GPU, GpuSample

PERIOD_SECONDS: Final = 1.0
"""Between two reads: as often as full ticks. A card is asked about ten things, some 10 ms in all."""
DEADLINE_SECONDS: Final = 5.0
"""A driver that is busy with a reset of another card answers within two or three."""
_LONGEST_PAUSE_SECONDS: Final = 30.0
"""Between two tries to begin anew: `nvmlInit` may take seconds and wakes cards that sleep."""


class GpuReader:
    """Reads every card for as long as it runs. `latest` never waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._session: Session | None = None
        self._xids: Xids = {}
        self._latest: Reading[GpuSample] = NO_GPU
        self._asking_since_s: float | None = None
        self._stop = threading.Event()
        self._pause_seconds = PERIOD_SECONDS
        self._reopen_at_s = 0.0

    def start(self) -> None:
        """Start the thread, if there is a library to load."""
        missing = library_missing()
        if missing is not None:
            self._latest = missing
        else:
            threading.Thread(target=self._run, name="gpu", daemon=True).start()

    def close(self) -> None:
        """Let the thread end when it can; nobody waits for a driver."""
        self._stop.set()

    def latest(self) -> Reading[GpuSample]:
        """Give what was read last, unless the driver has been asked for too long since."""
        since_s, session = self._asking_since_s, self._session
        if since_s is None or self._clock.now().monotonic_s - since_s <= DEADLINE_SECONDS:
            return self._latest
        call = "" if session is None else session.now_in
        return Unknown(Why.FAILED, call or "nvml", detail=f"no answer of the driver for {DEADLINE_SECONDS:g} s")

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._asking():
                    self._latest = self._read()
                pause_seconds = self._after()
            except Exception as exc:  # noqa: BLE001 - a binding that does not fit its driver must not end the thread
                self._session, pause_seconds = None, _LONGEST_PAUSE_SECONDS
                self._latest = Unknown(Why.FAILED, "nvml", detail=f"{type(exc).__name__}: {exc}"[:200])
            self._stop.wait(pause_seconds)
        if self._session is not None:
            self._session.close()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        self._asking_since_s = self._clock.now().monotonic_s
        try:
            yield
        finally:
            self._asking_since_s = None

    def _read(self) -> Reading[GpuSample]:
        if self._session is None:
            session = self._session = Session(self._clock.now, self._xids)
            absent = session.open()
            if absent is not None:
                self._session = None
                return absent
        assert self._session is not None, "opened above"
        return self._session.read()

    def _after(self) -> float:
        """Wait for an Xid, which ends the pause; or begin anew, ever less often, where only that helps."""
        session = self._session
        if session is not None and not session.broken:
            self._pause_seconds = PERIOD_SECONDS
            with self._asking():
                waited = session.wait(PERIOD_SECONDS)
            return 0.0 if waited else PERIOD_SECONDS
        now_s = self._clock.now().monotonic_s
        if session is not None and now_s < self._reopen_at_s:
            return PERIOD_SECONDS  # the other cards still answer
        if session is not None:
            session.close()
            self._session = None
        pause_seconds, self._pause_seconds = self._pause_seconds, min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
        self._reopen_at_s = now_s + pause_seconds
        return PERIOD_SECONDS if session is not None else pause_seconds
