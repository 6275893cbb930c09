"""Named tasks that are meant to run for ever, and the list of what does not work now.

House rules
    * A task that fails or finishes is started again after a pause that doubles up to a bound, and is forgotten as bad
      once it has run well for a while. Meanwhile it is named in `Degraded`. No task takes another with it.
    * Only the words that a task's failure put into `Degraded` are taken out because it runs well: what the task itself
      has said under its name is its own to clear.
    * Cancellation and every other BaseException pass through: the fence catches `Exception` only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from sidecar.clock import Clock
from sidecar.outputs.log import JsonLog

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
WELL_AFTER_SECONDS: Final = 60.0
"""A task that ran this long starts again with the first pause when it fails."""


class Finished(Exception):  # noqa: N818 - it is what happened, and an error only to the supervisor
    """A task that is meant to run for ever came to its end."""


class Degraded:
    """What does not work now, by subject, in words. `on_change(subject, words or None)` hears of every change."""

    def __init__(self, on_change: Callable[[str, str | None], None]) -> None:
        self._words: dict[str, str] = {}
        self._on_change = on_change

    def set(self, subject: str, words: str) -> None:
        """Say that something does not work."""
        if self._words.get(subject) != words:
            self._words[subject] = words
            self._on_change(subject, words)

    def clear(self, subject: str) -> None:
        """Say that it works (again)."""
        if self._words.pop(subject, None) is not None:
            self._on_change(subject, None)

    def words(self) -> tuple[str, ...]:
        """List it for the health page."""
        return tuple(f"{subject}: {words}" for subject, words in self._words.items())


class Supervisor:
    """Starts tasks, keeps them running, and ends them all in reverse order."""

    def __init__(self, clock: Clock, degraded: Degraded, log: JsonLog) -> None:
        self._clock = clock
        self._log = log
        self._degraded = degraded
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failed: set[str] = set()

    def start(self, name: str, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run `work()` for ever under this name; a name in use is an error of the caller."""
        assert name not in self._tasks, name
        self._tasks[name] = asyncio.create_task(self._keep(name, work), name=name)

    def cancel(self, name: str) -> None:
        """End one task without waiting for it; unknown names are fine."""
        task = self._tasks.pop(name, None)
        self._runs_well(name)
        if task is not None:
            task.cancel()

    async def stop_all(self) -> None:
        """End all tasks, the last one started first, and wait for each."""
        for name in reversed(list(self._tasks)):
            task = self._tasks.pop(name)
            task.cancel()
            await asyncio.wait({task})

    async def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        pauses = _Pauses(self._clock)
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Exception),
            wait=pauses,
            sleep=self._clock.sleep,
            before_sleep=lambda state: self._say(name, state),
        )
        async for attempt in retrying:
            with attempt:
                pauses.began()
                well = asyncio.get_running_loop().call_later(FIRST_PAUSE_SECONDS, self._runs_well, name)
                try:
                    await work()
                finally:
                    well.cancel()
                raise Finished(f"{name} ended by itself")

    def _say(self, name: str, state: RetryCallState) -> None:
        outcome = state.outcome
        assert outcome is not None, "tenacity calls this after an attempt"
        error = outcome.exception()
        words = f"{type(error).__name__}: {error}"
        self._log.error("task_failed", task=name, error=words, pause_seconds=state.upcoming_sleep)
        self._failed.add(name)
        self._degraded.set(name, f"{words}; trying again")

    def _runs_well(self, name: str) -> None:
        if name in self._failed:
            self._failed.remove(name)
            self._degraded.clear(name)


class _Pauses:
    """Pauses that double up to a bound and begin anew after a long good run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = 0.0
        self._next_seconds = FIRST_PAUSE_SECONDS

    def began(self) -> None:
        self._began_s = self._clock.now().monotonic_s

    def __call__(self, _state: RetryCallState) -> float:
        ran_well = self._clock.now().monotonic_s - self._began_s >= WELL_AFTER_SECONDS
        pause = FIRST_PAUSE_SECONDS if ran_well else self._next_seconds
        self._next_seconds = min(2 * pause, LONGEST_PAUSE_SECONDS)
        return pause
