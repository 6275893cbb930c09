"""The hand-over as it is in a pod: the model is another user in other namespaces, and the sidecar may be killed."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from guard.box.reader import parse_box
from guard.kernel import procfs
from guard.link.client import LinkClient, LinkSettings, Phase
from guard.model import Known
from sidecar.sight.handover import HandoverServer, ListenError
from sidecar.sight.seen import SeenLevel
from tests.lab.kit.cgroups import MIB, Cgroup, Limits
from tests.lab.kit.namespaces import Apart, inner_pid
from tests.lab.kit.offer import Mode, offer
from tests.lab.kit.places import CHECKOUT, PYTHON
from tests.lab.kit.wait import until
from tests.sidecar.eventually import eventually
from tests.sidecar.sight.handovers import Heard, handover, serving

lab = pytest.mark.lab
needs_cgroups = pytest.mark.skipif(offer().mode is None, reason=offer().reason)

MODEL = """
import os, sys, time
from guard.box.writer import BoxAbout, BoxWriter
from guard.kernel import identity
from guard.kernel.reader import Reader
from guard.link.client import LinkClient, LinkSettings
from guard.link.handover import Who, gather
from guard.link.protocol import Role
from guard.model import LifeId, OperationKind
reader = Reader()
life = LifeId(identity.boot_id(reader).value, os.getpid(), identity.start_ticks(reader).value, "apart")
box = BoxWriter.create(sys.argv[1] + "/boxes", life, BoxAbout(None, "1", "model"))
box.begin(OperationKind.LOAD, "load_file", file="/m/a.safetensors", bytes_expected=100).progress("layer.7", 70)
who = Who(name="apart", life=life, parent_session=None, command="model", role=Role.GUARD)
client = LinkClient(LinkSettings(sys.argv[1] + "/link.sock"), lambda: gather(reader, who, box_fd=box.fd), print)
client.start()
time.sleep(1000)
"""

SIDECAR = """
import asyncio, sys
from sidecar.sight.handover import HandoverCallbacks, HandoverServer
async def main():
    callbacks = HandoverCallbacks(lambda *_: print("seen", flush=True), print, print, print)
    await HandoverServer(sys.argv[1], callbacks).start()
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A shared directory that every user can reach, as an emptyDir is."""
    with TemporaryDirectory(prefix="og-shared-", dir="/tmp") as directory:
        Path(directory).chmod(0o1777)
        yield Path(directory)


def _names(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir()]


def _number(level: SeenLevel, name: str) -> int:
    reading = level.files[name].read()
    assert isinstance(reading, Known)
    return int(reading.value)


@lab
@needs_cgroups
async def test_a_model_in_other_namespaces_is_seen_until_it_is_killed(shared: Path) -> None:
    """Another uid, PID and cgroup namespace: its limit, its files and its box are read, and its death is noticed."""
    with Cgroup.make("handover", Limits(memory_max_bytes=200 * MIB)) as group:
        apart = Apart(uid=12345, reachable=(str(shared),))
        started = group.spawn([PYTHON, "-c", MODEL, str(shared)], apart=apart)
        async with serving(shared / "link.sock") as (_server, heard):
            await eventually(lambda: heard.seen or heard.refused, "the hand-over")
            assert heard.refused == []
            ((model, process),) = heard.seen
            inner = until(lambda: inner_pid(started.pid), 30, "the inner pid")
            stat = process.files["stat"].read()
            assert isinstance(stat, Known)
            parsed = procfs.parse_stat(stat.value, "stat")
            assert isinstance(parsed, Known)
            assert (12345, parsed.value.pid) == (process.uid, process.life.pid)
            assert inner != process.life.pid, "it is another number in its own namespace"
            assert model.hidden_ancestors
            own = model.levels[0]
            limit = "memory.max" if group.mode is Mode.V2 else "memory.limit_in_bytes"
            assert _number(own, limit) == 200 * MIB
            assert process.pidfd is not None
            os.kill(inner, signal.SIGKILL)
            assert await asyncio.to_thread(select.select, [process.pidfd], [], [], 20) != ([], [], [])
            await eventually(lambda: heard.lost, "the loss")
            assert process.box is not None
            raw = process.box.read()
            assert isinstance(raw, Known)
            state = parse_box(raw.value, "box")
            assert isinstance(state, Known)
            (operation,) = state.value.operations
            assert (
                operation.item,
                operation.bytes_done,
                operation.bytes_expected,
                operation.done,
            ) == ("layer.7", 70, 100, False)


@lab
@pytest.mark.skipif(os.getuid() != 0, reason="not root: no other user can be played")
async def test_the_socket_is_open_to_other_users_whatever_the_umask(shared: Path) -> None:
    """A user that is not the sidecar's hands over, in a directory that the sidecar made; its uid is the kernel's."""
    before = os.umask(0o077)
    try:
        async with serving(shared / "made" / "link.sock") as (_server, heard):
            apart = Apart(uid=12345, pid_namespace=False, cgroup_namespace=False, reachable=(str(shared),))
            command = apart.wrap([PYTHON, "-c", MODEL, str(shared / "made")])
            model = subprocess.Popen(command, cwd=CHECKOUT)  # noqa: ASYNC220 - nothing else runs meanwhile
            try:
                await eventually(lambda: heard.seen, "the hand-over")
                assert heard.seen[0][1].uid == 12345
            finally:
                model.kill()
                model.wait()
    finally:
        os.umask(before)


async def test_a_killed_sidecar_is_replaced_and_found_again(shared: Path) -> None:
    """The socket that SIGKILL left behind is taken over, and the waiting client hands over once more."""
    path = shared / "link.sock"
    client = LinkClient(LinkSettings(str(path), first_wait_seconds=0.01, longest_wait_seconds=0.1), handover, print)
    client.start()
    first = subprocess.Popen(  # noqa: ASYNC220 - starting takes a moment and nothing else runs
        [PYTHON, "-c", SIDECAR, str(path)], cwd=CHECKOUT, stdout=subprocess.PIPE
    )
    try:
        assert first.stdout is not None
        assert await asyncio.to_thread(first.stdout.readline) == b"seen\n"
    finally:
        first.kill()
        first.wait()
        first.stdout.close()  # type: ignore[union-attr]
    assert path.is_socket()
    async with serving(path) as (_server, heard):
        await eventually(lambda: heard.seen, "the second hand-over")
        await eventually(lambda: client.state.phase is Phase.CONNECTED, "the welcome")
    assert not path.exists()
    client.close()


async def test_a_living_sidecar_is_not_replaced(shared: Path) -> None:
    """The second one says that another listens, and the first goes on undisturbed."""
    path = shared / "link.sock"
    async with serving(path) as (_server, heard):
        with pytest.raises(ListenError, match="another sidecar listens"):
            await HandoverServer(str(path), Heard().callbacks()).start()
        assert _names(shared) == ["link.sock"]
        client = LinkClient(LinkSettings(str(path), first_wait_seconds=0.01), handover, print)
        client.start()
        await eventually(lambda: heard.seen, "the hand-over")
        assert heard.refused == []
        client.close()


def _plain_file(path: Path) -> None:
    path.write_text("precious")


def _file_as_parent(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("")


@pytest.mark.parametrize(
    ("spoil", "text"),
    [(_plain_file, "no socket: remove it"), (_file_as_parent, "no directory: set OOMGUARD_DIR")],
    ids=["file-in-place", "file-as-directory"],
)
async def test_a_place_that_cannot_be_listened_at_is_said(
    tmp_path: Path, spoil: Callable[[Path], None], text: str
) -> None:
    """What is no socket is never replaced, and the reason is clear."""
    path = tmp_path / "shared" / "link.sock"
    path.parent.mkdir()
    spoil(path)
    with pytest.raises(ListenError, match=text):
        await HandoverServer(str(path), Heard().callbacks()).start()


async def test_a_path_that_is_too_long_for_a_socket_is_said(tmp_path: Path) -> None:
    """Unix sockets have names of at most 107 bytes."""
    with pytest.raises(ListenError, match="too long"):
        await HandoverServer(str(tmp_path / ("x" * 120) / "link.sock"), Heard().callbacks()).start()
