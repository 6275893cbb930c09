"""One supervisor, followed for ever: what it says goes to the model it is about. Neither tick nor pages wait for it.

A supervisor knows of an end later than we do, and often says more about it a moment after that. So it is asked again a
few times behind each end, and an end of which it says something new is passed on again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from sidecar.clock import Clock
from sidecar.supervise import Degraded
from sidecar.supervisors.values import Container, Source, Subject, Trouble
from sidecar.supervisors.whose import container_of
from sidecar.verdict.supervisor_values import SupervisorEnd

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
REFUSED_PAUSE_SECONDS: Final = 300.0
"""A missing right comes by hand, if ever."""
LOOKS_SECONDS: Final = (0.5, 3.0, 10.0, 30.0)
"""Pauses before it is asked again, after an end. A kubelet tells the API within some ten seconds."""
_JITTER: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Whom it may be about, and who hears of it.

    `told(model, container, end)` hears of each container of a model; of an end that is new it answers whether the
    model has had such an end. `stopping(model, why)` hears once why one is to end.
    """

    names: Mapping[str | None, str]
    subjects: Callable[[], Sequence[Subject]]
    told: Callable[[str, Container, SupervisorEnd | None], bool]
    stopping: Callable[[str, SupervisorEnd], None]


class Asking:
    """Two tasks for ever: `follow`, and `look_again`, which `wake` wakes."""

    def __init__(self, source: Source, clock: Clock, degraded: Degraded, models: Models) -> None:
        self.name = source.name
        self._source = source
        self._clock = clock
        self._degraded = degraded
        self._models = models
        self._matched: dict[str, SupervisorEnd] = {}
        self._stopping: dict[str, SupervisorEnd] = {}
        self._failures = 0
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """A model has ended or begun: ask about it."""
        self._woken.set()

    async def follow(self) -> None:
        """Pass on what it says, and say once where it does not answer."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Trouble),
            wait=self._pause,
            sleep=self._clock.sleep,
            before_sleep=self._say,
        )
        async for attempt in retrying:
            with attempt:
                await self._source.follow(self._take)

    async def look_again(self) -> None:
        """Ask a few times behind each end and each start."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            for pause in LOOKS_SECONDS:
                await self._clock.sleep(pause)
                try:
                    await self._source.look(self._take)
                except Trouble as exc:
                    self._degraded.set(self.name, _words(exc))

    def _take(self, containers: Sequence[Container], lacking: str | None) -> None:
        self._failures = 0
        if lacking is None:
            self._degraded.clear(self.name)
        else:
            self._degraded.set(self.name, lacking)
        subjects = self._models.subjects()
        for kept in (self._matched, self._stopping):
            for model in kept.keys() - {one.model for one in subjects}:
                del kept[model]
        for subject in subjects:
            alone = all(one is subject or not one.alive for one in subjects)
            container = container_of(subject, containers, self._models.names, alone=alone)
            if container is not None:
                self._pass_on(subject.model, container)

    def _pass_on(self, model: str, container: Container) -> None:
        end = container.end
        new = end is not None and end != self._matched.get(model)
        matched = self._models.told(model, container, end if new else None)
        if new and matched and end is not None:
            self._matched[model] = end
        why = container.stopping
        if why is not None and why != self._stopping.get(model):
            self._stopping[model] = why
            self._models.stopping(model, why)

    def _pause(self, state: RetryCallState) -> float:
        error = None if state.outcome is None else state.outcome.exception()
        if isinstance(error, Trouble) and error.lasting:
            return REFUSED_PAUSE_SECONDS
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return pause * (1.0 - _JITTER * random.random())  # noqa: S311 - so that sidecars do not all ask at once

    def _say(self, state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        self._degraded.set(self.name, _words(error))


def _words(error: BaseException | None) -> str:
    return f"{error}; asked again later"
