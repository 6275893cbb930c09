"""Docker and Podman as supervisors, through their socket: events as they come, and the state of each container.

Only reads are made; but who may write to this socket is root on the host, so it is used where it was put in our reach.
A container that was removed is told by what was heard of it; one of the same name takes its place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import aiodocker
import aiohttp
import msgspec

from sidecar.clock import Clock
from sidecar.supervisors.docker_ends import EngineEvent, Inspected, end_of
from sidecar.supervisors.values import Container, Take, Trouble

_ANSWER_SECONDS: Final = 10.0
_BACK_SECONDS: Final = 60
"""How far back events are asked for at the start: an end may just have happened."""
_EVENTS: Final = ("die", "kill", "stop", "start", "destroy", "oom", "health_status")
"""Asked of Docker. Podman 4.3 gives none at all where one of the names is not its own ("died", "remove"; tried)."""
_PASSED_OVER: Final = ("exec_create", "exec_start", "exec_detach", "top", "attach", "resize", "archive-path")
_LONGEST_ANSWER: Final = 8 << 20  # a thousand containers in a list take about 2 MiB
_KEPT_EVENTS: Final = 64
_KEPT_CONTAINERS: Final = 64
_NOT_FOUND: Final = 404
_FORBIDDEN: Final = (401, 403)


class _Bounded(aiohttp.ClientResponse):
    """An answer that is not read to its end where it has none: nobody says what listens at a socket."""

    async def read(self) -> bytes:
        """Read the body. Raises aiohttp.ClientPayloadError beyond `_LONGEST_ANSWER`."""
        if self._body is None:
            chunks = bytearray()
            async for chunk in self.content.iter_any():
                chunks += chunk
                if len(chunks) > _LONGEST_ANSWER:
                    self.close()
                    raise aiohttp.ClientPayloadError(f"an answer longer than {_LONGEST_ANSWER >> 20} MiB")
            self._body = bytes(chunks)
        return self._body


@dataclass(slots=True)
class _Known:
    """What is known of one container."""

    inspected: Inspected
    there: bool = True
    events: deque[EngineEvent] = field(default_factory=lambda: deque(maxlen=_KEPT_EVENTS))


class DockerSource:
    """See `values.Source`. `own_id`: our own container's, None where we are in none.

    `wanted(id, name)` says that a container is of interest although it does not share our directory.
    """

    def __init__(
        self, url: str, clock: Clock, *, own_id: str | None, directory: str, wanted: Callable[[str, str], bool]
    ) -> None:
        self.name = f"container engine at {url.removeprefix('unix://')}"
        self._url = url
        self._clock = clock
        self._own_id = own_id
        self._directory = directory
        self._wanted = wanted
        self._known: dict[str, _Known] = {}
        self._since_s: float | None = None
        self._podman = False
        self._shared: str | None = None
        """The host's path of the directory that we share; None where it is on no mount, or not known yet."""

    async def follow(self, take: Take) -> None:
        """Listen for events from where we stopped listening, and look at each."""
        async with self._engine() as docker:
            await self._ask_kind(docker)
            since = int(self._since_s or self._clock.now().wall_s - _BACK_SECONDS)
            wanted = {"type": ["container"]} | ({} if self._podman else {"event": _EVENTS})
            filters = msgspec.json.encode(wanted).decode()
            subscriber = docker.events.subscribe(create_task=False)  # type: ignore[no-untyped-call]
            listening = asyncio.create_task(docker.events.run(since=str(since), filters=filters))
            try:
                await self._look(docker, take)
                while None not in (batch := await _batch(subscriber)):
                    with _shaped():
                        heard = [self._hear(said) for said in batch]
                    if any(heard):
                        await self._look(docker, take)
            finally:
                listening.cancel()
                await asyncio.wait({listening})
            if not listening.cancelled():
                listening.result()
        raise Trouble("the engine ended the stream of events")

    async def look(self, take: Take) -> None:
        """Look at every container once."""
        async with self._engine() as docker:
            await self._ask_kind(docker)
            await self._look(docker, take)

    @asynccontextmanager
    async def _engine(self) -> AsyncIterator[aiodocker.Docker]:
        """Connect, and say every failure in words."""
        try:
            docker = aiodocker.Docker(url=self._url, timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS))
        except ValueError as exc:
            raise Trouble(f"supervised.socket: {exc}", lasting=True) from exc
        docker.session.detach()  # it keeps the connector for the next one
        docker.session = aiohttp.ClientSession(connector=docker.connector, response_class=_Bounded)
        async with docker:
            try:
                yield docker
            except aiodocker.DockerError as exc:
                lasting = exc.status in _FORBIDDEN or "Permission denied" in exc.message
                advice = ": run the sidecar with the socket's group (group_add, --group-add)" if lasting else ""
                raise Trouble(f"{exc.message}{advice}", lasting=lasting) from exc
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError, msgspec.MsgspecError) as exc:
                raise Trouble(_words(exc)) from exc

    async def _ask_kind(self, docker: aiodocker.Docker) -> None:
        with _shaped():
            said = await docker.version()
            self._podman = any("Podman" in str(one.get("Name")) for one in said.get("Components") or ())

    def _hear(self, said: Mapping[str, Any]) -> bool:
        """Keep one event; tell whether it may say something of a container that is ours, or may be."""
        actor = said.get("Actor") or {}
        nanoseconds = said.get("timeNano")
        action = str(said.get("Action"))
        if not isinstance(nanoseconds, int) or not isinstance(actor.get("ID"), str) or action.startswith(_PASSED_OVER):
            return False
        event = EngineEvent(
            container_id=actor["ID"],
            action=action,
            at_wall_s=nanoseconds / 1e9,
            attributes={str(name): str(value) for name, value in (actor.get("Attributes") or {}).items()},
        )
        self._since_s = event.at_wall_s
        known = self._known.get(event.container_id)
        ours = known is None or self._is_of_interest(known.inspected)
        if known is None:  # it may have come and gone between two looks
            name = event.attributes.get("name", "")
            known = self._known[event.container_id] = _Known(Inspected(id=event.container_id, name=name), there=False)
        if event not in known.events:  # the last second is given twice where we listen anew
            known.events.append(event)
        return ours and not event.action.startswith(("exec", "health"))

    async def _look(self, docker: aiodocker.Docker, take: Take) -> None:
        self._shared = await self._host_path(docker)
        with _shaped():
            listed = [str(one["Id"]) for one in await docker.containers.list(all="true")]
        for one in listed:
            known = self._known.get(one)
            if known is None or not known.there or self._is_of_interest(known.inspected):
                await self._refresh(docker, one)
        gone = set(self._known) - set(listed)
        for one in gone:
            self._known[one].there = False
        self._forget()
        interesting = [one for one in self._known.values() if self._is_of_interest(one.inspected)]
        take(self._containers(interesting), None)

    async def _host_path(self, docker: aiodocker.Docker) -> str | None:
        """Give the host's path of our directory; None where another engine runs us, or where it is on no mount."""
        if self._own_id is None:
            return self._directory
        own = await self._inspect(docker, self._own_id)
        return None if own is None else own.source_of(self._directory)

    def _shares(self, one: Inspected) -> bool:
        return self._shared is not None and one.uses(self._shared)

    def _is_of_interest(self, one: Inspected) -> bool:
        return one.id != self._own_id and (self._shares(one) or self._wanted(one.id, one.name.lstrip("/")))

    async def _refresh(self, docker: aiodocker.Docker, container_id: str) -> None:
        inspected = await self._inspect(docker, container_id)
        if inspected is None:
            return
        known = self._known.setdefault(container_id, _Known(inspected))
        known.inspected, known.there = inspected, True

    async def _inspect(self, docker: aiodocker.Docker, container_id: str) -> Inspected | None:
        try:
            said = await docker.containers.container(container_id).show()
            return msgspec.convert(said, Inspected)
        except aiodocker.DockerError as exc:
            if exc.status == _NOT_FOUND:
                return None
            raise

    def _forget(self) -> None:
        """Keep what is there, and the last ones that are gone."""
        gone = [name for name, one in self._known.items() if not one.there]
        for name in gone[:-_KEPT_CONTAINERS]:
            del self._known[name]

    def _containers(self, known: list[_Known]) -> list[Container]:
        """Give one container for each name: the one that is there, with the end of an earlier one if it has none."""
        by_name: dict[str, Container] = {}
        for one in sorted(known, key=lambda one: one.there):
            container = self._container(one)
            earlier = by_name.get(container.name)
            if container.end is None and earlier is not None:
                container = replace(container, end=earlier.end)
            by_name[container.name] = container
        return list(by_name.values())

    def _container(self, known: _Known) -> Container:
        one, kind = known.inspected, "podman" if self._podman else "docker"
        name = one.name.lstrip("/")
        now = one if known.there or one.state.running is False else Inspected(id=one.id, name=one.name)
        return Container(
            supervisor=kind,
            name=name,
            id=one.id,
            shares=self._shares(one),
            running=now.state.running if known.there else False,
            restart_count=now.restart_count,
            end=end_of(f"{kind.title()}, container {name}", tuple(known.events), now, podman=self._podman),
        )


async def _batch(subscriber: Any) -> list[Any]:  # noqa: ANN401 - aiodocker types neither it nor its events
    """Wait for an event, and take all that are there: a restart gives several, and one look is enough."""
    batch = [await subscriber.get()]
    while not subscriber.queue.empty():
        batch.append(subscriber.queue.get_nowait())
    return batch


@contextmanager
def _shaped() -> Iterator[None]:
    """Say that an answer is JSON of another shape than the engine's: aiodocker takes it apart without a look."""
    try:
        yield
    except (TypeError, AttributeError, LookupError) as exc:
        raise Trouble("the answer is not understood: is this the socket of a container engine?") from exc


def _words(exc: Exception) -> str:
    """Give one short line: a failure to understand may quote all that came."""
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    return f"{type(exc).__name__}: {' '.join(str(exc).split())}"[:200]
