"""What a guard gave back reaches the sidecar's side of the socket."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from guard.link.protocol import Relieved
from sidecar.sight.handover import HandoverServer
from sidecar.sight.seen import SeenModel, SeenProcess
from tests.sidecar.eventually import eventually
from tests.sidecar.sight.handovers import Heard, RawClient, handover

EFFECT = Relieved(
    action="drop",
    level="warning",
    seconds=0.25,
    anon_freed_bytes=1 << 20,
    cgroup_freed_bytes=None,
    gpu_freed_bytes=None,
)


async def test_an_effect_is_told_with_its_process(tmp_path: Path) -> None:
    """After the welcome a guard tells of its relief; a flood of it ends the connection, as any flood does."""
    told: list[tuple[SeenModel, SeenProcess, Relieved]] = []
    heard = Heard()
    callbacks = replace(heard.callbacks(), on_relieved=lambda *what: told.append(what))
    server = HandoverServer(str(tmp_path / "link.sock"), callbacks)
    await server.start()
    with RawClient(tmp_path / "link.sock") as client:
        client.hand_over(handover())
        await client.answer()
        client.send(EFFECT)
        await eventually(lambda: told, "the effect")
        assert told == [(*heard.seen[0], EFFECT)]
        for _ in range(30):
            client.send(EFFECT)
        await eventually(lambda: any("too many messages" in one for one in heard.refused), "the flood to be refused")
    await server.close()
