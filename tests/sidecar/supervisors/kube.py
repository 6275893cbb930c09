"""A server that answers as the Kubernetes API does, over TLS, about one pod; and the files of a service account."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from sidecar.supervisors.kubernetes_cluster import Cluster

NAMESPACE, NAME, UID = "shop", "llm-0", "0a1b2c3d-1111-2222-3333-444455556666"


def pod(version: int, *statuses: dict[str, Any], **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Give a pod with a sidecar called "oomguard" and a container "server", which share a volume."""
    mount = {"name": "shared", "mountPath": "/run/oomguard"}
    return {
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "uid": UID, "resourceVersion": str(version), **metadata},
        "spec": {
            "initContainers": [{"name": "oomguard", "volumeMounts": [mount]}],
            "containers": [{"name": "server", "volumeMounts": [mount]}, {"name": "proxy"}],
        },
        "status": {"phase": "Running", "containerStatuses": list(statuses)},
    }


def status(name: str, restarts: int, **last: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Give the status of a running container, whose last life ended so."""
    return {
        "name": name,
        "containerID": f"containerd://{'c' * 64}",
        "restartCount": restarts,
        "ready": True,
        "state": {"running": {"startedAt": "2026-11-30T10:00:05Z"}},
        "lastState": {"terminated": last} if last else {},
    }


OOM = {
    "exitCode": 137,
    "reason": "OOMKilled",
    "startedAt": "2026-11-30T09:00:00Z",
    "finishedAt": "2026-11-30T10:00:00Z",
}
ERROR = {**OOM, "reason": "Error"}


def event(reason: str, message: str, at: str = "2026-11-30T09:59:40Z", container: str = "server") -> dict[str, Any]:
    """Give an event about a container of the pod."""
    path = f"spec.containers{{{container}}}"
    return {
        "reason": reason,
        "message": message,
        "type": "Normal",
        "lastTimestamp": at,
        "involvedObject": {"fieldPath": path},
    }


@dataclass
class Asked:
    """One request."""

    path: str
    query: dict[str, str]
    token: str


@dataclass
class KubeServer:
    """What it holds and how it answers. `refuse` maps "get pods", "watch pods", "list events" to a status code."""

    pod: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)
    token: str = "first"
    refuse: dict[str, int] = field(default_factory=dict)
    hang: bool = False
    oldest: int = 0  # a watch from before it is answered with 410
    asked: list[Asked] = field(default_factory=list)
    watches: list[web.StreamResponse] = field(default_factory=list)

    def count(self, what: str) -> int:
        """Say how often it was asked for "get pods", "watch pods" or "list events"."""
        return sum(_what(one) == what for one in self.asked)

    async def change(self, new: dict[str, Any], kind: str = "MODIFIED") -> None:
        """Replace the pod, and tell whoever watches."""
        self.pod = new
        await self.say({"type": kind, "object": new})

    async def say(self, line: dict[str, Any]) -> None:
        """Write a line to whoever watches."""
        for watch in self.watches:
            await watch.write(json.dumps(line).encode() + b"\n")

    def reset(self) -> None:
        """Break every watch off, as a server does that goes down."""
        for watch in self.watches:
            transport = watch._req.transport if watch._req else None
            if transport is not None:
                transport.abort()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        asked = Asked(request.path, dict(request.query), token)
        self.asked.append(asked)
        if self.hang:
            await asyncio.Event().wait()
        if token != self.token:
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        if (code := self.refuse.get(_what(asked))) is not None:
            return web.json_response({"kind": "Status", "code": code}, status=code)
        if _what(asked) == "list events":
            return web.json_response({"kind": "EventList", "items": self.events})
        if _what(asked) == "get pods":
            found = request.path.endswith(f"/{NAMESPACE}/pods/{NAME}")
            return web.json_response(self.pod if found else {"code": 404}, status=200 if found else 404)
        return await self._watch(request)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        if int(request.query["resourceVersion"]) < self.oldest:
            gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
            await stream.write(json.dumps(gone).encode() + b"\n")
            return stream
        self.watches.append(stream)
        try:
            await asyncio.Event().wait()
        finally:
            self.watches.remove(stream)
        return stream


def _what(asked: Asked) -> str:
    if asked.path.endswith("/events"):
        return "list events"
    return "watch pods" if asked.query.get("watch") == "true" else "get pods"


def make_account(folder: Path) -> Path:
    """Make the files of a service account, with a certificate that is its own authority; give the key's path."""
    key, certificate = folder / "server.key", folder / "ca.crt"
    subject = ("-subj", "/CN=kube-apiserver", "-addext", "subjectAltName=IP:127.0.0.1")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ("-keyout", str(key), "-out", str(certificate), "-days", "2")
    subprocess.run([*command, *subject, *files], check=True, capture_output=True)
    (folder / "namespace").write_text(NAMESPACE)
    (folder / "token").write_text("first\n")
    return key


@contextlib.asynccontextmanager
async def serving(server: KubeServer, folder: Path) -> AsyncIterator[Cluster]:
    """Serve on loopback, with the service account in `folder`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", make_account(folder))
    application = web.Application()
    application.router.add_get("/{tail:.*}", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield Cluster(url=f"https://127.0.0.1:{port}", folder=str(folder), pod=NAME)
    finally:
        await runner.cleanup()
