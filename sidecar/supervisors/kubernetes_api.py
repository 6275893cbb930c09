"""The few calls to the Kubernetes API that we make, with the service account of our own pod.

The token is read for every request: the kubelet replaces it within the hour. A request has a deadline; a watch has
one between two lines, a little above the time after which the server ends it anyway.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Final, Self, TypeVar

import aiohttp
import msgspec

from sidecar.supervisors.kubernetes_cluster import Cluster
from sidecar.supervisors.kubernetes_pod import Pod
from sidecar.supervisors.kubernetes_words import Event
from sidecar.supervisors.values import Trouble

_ANSWER_SECONDS: Final = 10.0
WATCH_SECONDS: Final = 300
_PATIENCE_SECONDS: Final = 15.0
_LONGEST_LINE: Final = 4 << 20  # etcd stores no object above 1.5 MiB
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _GONE = 401, 403, 404, 410
_GRANT: Final = "grant it with integrations/kubernetes/supervisor-role.yaml, or set OOMGUARD_SUPERVISOR=none"

_T = TypeVar("_T")


class Expired(Exception):  # noqa: N818 - not an error: the watch begins anew
    """What the watch was to begin with is too old (410 Gone)."""


class _PodChange(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Code(msgspec.Struct):
    code: int | None = None


class _Events(msgspec.Struct):
    items: list[Event] = []


class Api:
    """One session of calls about one pod. Raises `Trouble`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._namespace = cluster.read("namespace")
        try:
            context = ssl.create_default_context(cafile=f"{cluster.folder}/ca.crt")
        except OSError as exc:  # an SSLError is one
            raise Trouble(f"{cluster.folder}/ca.crt: {exc}") from exc
        self._session = aiohttp.ClientSession(
            cluster.url,
            connector=aiohttp.TCPConnector(ssl=context, limit=2),
            headers={"User-Agent": "oomguard", "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS),
            read_bufsize=1 << 16,
        )

    async def __aenter__(self) -> Self:
        """Begin."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._session.close()

    async def pod(self) -> Pod:
        """Read our pod."""
        name = self._cluster.pod
        return _decoded(await self._get(f"pods/{name}", {}, f"get pods (of {self._namespace}/{name})"), Pod)

    async def events(self, uid: str) -> list[Event]:
        """List the events about our pod."""
        fields = {"fieldSelector": f"involvedObject.uid={uid}"}
        return _decoded(await self._get("events", fields, f"list events (of {self._namespace})"), _Events).items

    async def watch(self, version: str) -> AsyncGenerator[Pod, None]:
        """Give our pod at every change after `version`, until the server ends the watch. Raises `Expired` as well."""
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={self._cluster.pod}",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        patience = aiohttp.ClientTimeout(connect=_ANSWER_SECONDS, sock_read=WATCH_SECONDS + _PATIENCE_SECONDS)
        right = f"watch pods (of {self._namespace})"
        try:
            asked = self._session.get(self._path("pods"), params=query, headers=self._auth(), timeout=patience)
            async with asked as answer:
                if answer.status == _GONE:
                    raise Expired
                _check(answer, right)
                async for line in _lines(answer.content):
                    change = _decoded(line, _PodChange)
                    if change.type == "ERROR":
                        raise Expired if _decoded(change.object, _Code).code == _GONE else Trouble("the watch failed")
                    yield _decoded(change.object, Pod)
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise Trouble(_words(exc)) from exc

    async def _get(self, what: str, query: Mapping[str, str], right: str) -> bytes:
        try:
            async with self._session.get(self._path(what), params=query, headers=self._auth()) as answer:
                _check(answer, right)
                return await _whole(answer.content)
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise Trouble(_words(exc)) from exc

    def _path(self, what: str) -> str:
        return f"/api/v1/namespaces/{self._namespace}/{what}"

    def _auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._cluster.read('token')}"}


def _check(answer: aiohttp.ClientResponse, right: str) -> None:
    """Raise where the answer is no success, with words that say what to do."""
    if answer.status == _UNAUTHORIZED:
        raise Trouble("the token is not accepted (401)")
    if answer.status == _FORBIDDEN:
        raise Trouble(f"no right to {right}: {_GRANT}", lasting=True)
    if answer.status == _NOT_FOUND:
        words = f"no such pod ({right}): set supervised.pod (OOMGUARD_SUPERVISED_POD) to the pod's name"
        raise Trouble(words, lasting=True)
    if not answer.ok:
        raise Trouble(f"the API answers with status {answer.status}")


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Give the lines of a stream. aiohttp's own readline refuses those above its buffer, and pods may be larger."""
    rest = b""
    while data := await content.readany():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > _LONGEST_LINE:
            raise Trouble("the watch gives a line without end")


async def _whole(content: aiohttp.StreamReader) -> bytes:
    """Give an answer, unless it is larger than any that we ask for: it would be the sidecar's end."""
    data = bytearray()
    while more := await content.readany():
        data += more
        if len(data) > _LONGEST_LINE:
            raise Trouble("the answer is too large")
    return bytes(data)


def _decoded(data: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as exc:
        raise Trouble(f"the API's answer is not understood: {exc}") from exc


def _words(exc: Exception) -> str:
    if isinstance(exc, asyncio.TimeoutError):
        return "no answer in time"
    return f"{type(exc).__name__}: {exc}"[:200]
