"""Kubernetes as a supervisor: our own pod, watched, and the events about it once something has ended."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from sidecar.clock import Clock
from sidecar.supervisors.kubernetes_api import Api, Expired
from sidecar.supervisors.kubernetes_cluster import Cluster
from sidecar.supervisors.kubernetes_pod import Pod, containers_of
from sidecar.supervisors.kubernetes_words import Event
from sidecar.supervisors.values import Take, Trouble

_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
"""Between two watches: the short one, and what it doubles up to where each watch breaks at once."""
_SHORT_SECONDS: Final = 10.0


class KubernetesSource:
    """See `values.Source`. `own` names our container in the pod, `directory` is what we share with our models."""

    name = "Kubernetes API"

    def __init__(self, cluster: Cluster, clock: Clock, *, own: str | None, directory: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._own = own
        self._directory = directory

    async def follow(self, take: Take) -> None:
        """Read the pod, then watch it from there, again and again. A watch that breaks is nobody's trouble."""
        pause = _PAUSE_SECONDS
        async with Api(self._cluster) as api:
            while True:
                pod = await self._read(api, take)
                began = self._clock.now().monotonic_s
                try:
                    async with aclosing(api.watch(pod.metadata.resource_version)) as changes:
                        async for changed in changes:
                            await self._pass_on(api, changed, take)
                except Expired:
                    pass
                except Trouble as exc:
                    if exc.lasting:
                        raise
                short = self._clock.now().monotonic_s - began < _SHORT_SECONDS
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS) if short else _PAUSE_SECONDS
                await self._clock.sleep(pause)

    async def look(self, take: Take) -> None:
        """Read the pod once."""
        async with Api(self._cluster) as api:
            await self._read(api, take)

    async def _read(self, api: Api, take: Take) -> Pod:
        pod = await api.pod()
        await self._pass_on(api, pod, take)
        return pod

    async def _pass_on(self, api: Api, pod: Pod, take: Take) -> None:
        events: list[Event] = []
        lacking: str | None = None
        if pod.ended:
            try:
                events = await api.events(pod.metadata.uid)
            except Trouble as exc:
                lacking = str(exc)
        take(containers_of(pod, events, own=self._own, directory=self._directory), lacking)
