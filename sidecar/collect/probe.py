"""The sidecar's own probe of the model, from outside: one in flight, every latency measured.

It asks as the kubelet would: a new connection each time, 200 to 399 is success, redirects are not followed, a body is
read as it came and not unpacked.
It gives up at the period rather than at the timeout, so that a late answer is told from none; that a probe is in
flight past the timeout can be seen at `in_flight_since`, so no verdict has to wait for it.

A probe that was given up is still listened to for a while: under reclaim an answer may take longer than the period, and
tells a slow server from a silent one (`heard_late`). It makes no failure a success.

What the sidecar itself could not do (no descriptor, no memory, no port left) is no failure of the model: the reading is
then unknown, and says why.

Only time in which the sidecar could have heard an answer is counted: while a probe is in flight it looks every tenth of
a second, and a longer pause was its own (starved of CPU, stopped, reclaimed), not the model's.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import Final, TypeAlias

import aiohttp

from guard.model import Known, Reading, Unknown, Why
from sidecar.clock import Clock
from sidecar.health.values import NO_PROBE, Rules
from sidecar.sample import Instant, ProbeOutcome, ProbeResult
from sidecar.settings import ProbeKind, ProbeTarget

_SUCCESS: Final = range(200, 400)
_BODY_LIMIT: Final = 10 << 10  # bytes read of an answer, as the kubelet does
LISTEN_SECONDS: Final = 30.0
"""How long a probe that was given up is listened to. Thrash without an answer for this long is as good as a hang."""
_LOOK_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 0.2  # between two looks; a busy loop is late by milliseconds
_NONE_YET: Final = Unknown(Why.NOT_SAMPLED, "probe", detail="none has finished yet")
_HEADERS: Final = {"User-Agent": "oomguard", "Accept": "*/*", "Accept-Encoding": "identity"}


_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL})
"""What connect(2) and socket(2) say of whoever calls them, and not of whom is called."""

_Asking: TypeAlias = asyncio.Task[tuple[ProbeOutcome, str]]


class Prober:
    """Probes one model for ever in `run`. `last` and `in_flight_since` are for the tick; `on_result` hears each one."""

    def __init__(
        self, target: ProbeTarget | None, rules: Rules, clock: Clock, on_result: Callable[[ProbeResult], None]
    ) -> None:
        self._target = target
        self._rules = rules
        self._clock = clock
        self._on_result = on_result
        self._turn: asyncio.Task[None] | None = None
        self._flight: _Flight | None = None
        self._given_up: set[_Asking] = set()
        self.heard_late: Instant | None = None
        self.last: Reading[ProbeResult] = _NONE_YET if self.wanted else NO_PROBE

    @property
    def wanted(self) -> bool:
        """Whether there is anything to probe."""
        return self._target is not None and self._target.kind is not ProbeKind.NONE

    @property
    def asked(self) -> str | None:
        """Where it asks, without a user's name and password; None where there is nothing to probe."""
        if self._target is None or not self.wanted:
            return None
        scheme, _, rest = self._target.where.rpartition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if scheme else rest

    @property
    def in_flight_since(self) -> Instant | None:
        """Since when a probe waits for its answer, not counting pauses of our own; None where none is in flight."""
        if self._flight is None:
            return None
        now = self._clock.now()
        waited = self._flight.waited(now)
        return Instant(now.monotonic_s - waited, now.wall_s - waited)

    def forget_before(self, born: Instant) -> None:
        """Forget what was asked before a new life began, in flight or answered, and ask that life at once."""
        flight, answered = self._flight, False
        self._stop_listening()
        if isinstance(self.last, Known):
            answered = self.last.value.started >= born
            self.last = self.last if answered else _NONE_YET
        if answered or (flight is not None and flight.started >= born):
            return
        self._flight = None
        if self._turn is not None:
            self._turn.cancel()

    async def run(self) -> None:
        """Probe at each period, counted from the start of the last probe."""
        while True:
            turn = self._turn = asyncio.create_task(self._probe_and_pause())
            try:
                await asyncio.wait({turn})
            finally:
                if turn.cancel():
                    await asyncio.wait({turn})
                    self._stop_listening()
            if not turn.cancelled():
                turn.result()  # what went wrong in it is for the supervisor

    async def _probe_and_pause(self) -> None:
        started = self._clock.now()
        self.last = await self._once(started)
        if isinstance(self.last, Known):
            self._on_result(self.last.value)
        spent = self._clock.now().monotonic_s - started.monotonic_s
        await self._clock.sleep(max(0.0, self._rules.period_seconds - spent))

    async def _once(self, started: Instant) -> Reading[ProbeResult]:
        flight = self._flight = _Flight(started)
        asking = asyncio.create_task(self._ask())
        patience = max(self._rules.timeout_seconds, self._rules.period_seconds)
        try:
            while not asking.done() and flight.waited(self._clock.now()) < patience:
                await asyncio.wait({asking}, timeout=_LOOK_SECONDS)
                flight.look(self._clock.now())
            found = _outcome(asking)
            self._listen_on(asking)
        finally:
            self._flight = None
            if asking not in self._given_up and asking.cancel():
                await asyncio.wait({asking})
        if isinstance(found, Unknown):
            return found
        outcome, detail = found
        return Known(ProbeResult(started=started, latency_seconds=flight.seconds, outcome=outcome, detail=detail))

    def _listen_on(self, asking: _Asking) -> None:
        if asking.done():
            return
        self._given_up.add(asking)
        asyncio.get_running_loop().call_later(LISTEN_SECONDS, asking.cancel)
        asking.add_done_callback(self._heard)

    def _heard(self, asking: _Asking) -> None:
        known = asking in self._given_up
        self._given_up.discard(asking)
        if not asking.cancelled() and asking.exception() is None and known and asking.result()[0] is ProbeOutcome.OK:
            self.heard_late = self._clock.now()

    def _stop_listening(self) -> None:
        """Forget what was given up: it is of another life, or nobody wants to know any more."""
        given_up, self._given_up = self._given_up, set()
        self.heard_late = None
        for asking in given_up:
            asking.cancel()

    async def _ask(self) -> tuple[ProbeOutcome, str]:
        target = self._target
        assert target is not None, "only run where a probe is wanted"
        if target.kind is ProbeKind.TCP:
            return await _connect(target.where)
        if target.kind is ProbeKind.GRPC:
            from sidecar.collect.probe_grpc import check

            return await check(target.where)
        connector = aiohttp.TCPConnector(force_close=True, limit=1, ssl=False)
        async with (
            aiohttp.ClientSession(connector=connector, headers=_HEADERS, auto_decompress=False) as session,
            session.get(target.where, allow_redirects=False) as answer,
        ):
            await answer.content.read(_BODY_LIMIT)
            return (ProbeOutcome.OK if answer.status in _SUCCESS else ProbeOutcome.FAILED), f"status {answer.status}"


class _Flight:
    """A probe in flight: how long it has waited, leaving out pauses of our own."""

    def __init__(self, started: Instant) -> None:
        self.started = started
        self.seconds = 0.0
        self._looked = started

    def waited(self, now: Instant) -> float:
        """Say how long it has waited by now."""
        return self.seconds + min(now.monotonic_s - self._looked.monotonic_s, _PAUSE_SECONDS)

    def look(self, now: Instant) -> None:
        """Note that we could have heard an answer."""
        self.seconds, self._looked = self.waited(now), now


def _outcome(asking: _Asking) -> tuple[ProbeOutcome, str] | Unknown:
    if not asking.done():
        return ProbeOutcome.TIMEOUT, ""
    try:
        return asking.result()
    except Exception as exc:  # noqa: BLE001 - whatever an answer makes a library raise, it is no success
        return _failure(exc)


async def _connect(where: str) -> tuple[ProbeOutcome, str]:
    host, _, port = where.rpartition(":")
    _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    writer.close()
    return ProbeOutcome.OK, "connected"


def _failure(exc: Exception) -> tuple[ProbeOutcome, str] | Unknown:
    number = exc.errno if isinstance(exc, OSError) else None
    if number in _OURS:
        return Unknown(Why.FAILED, "probe", number, f"the sidecar itself could not ask: {os.strerror(number)}")
    outcome = ProbeOutcome.REFUSED if number == errno.ECONNREFUSED else ProbeOutcome.ERROR
    return outcome, f"{type(exc).__name__}: {exc}"[:200]
