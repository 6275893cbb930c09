"""Honest clients: what the server makes of their hand-overs."""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from guard.box.writer import BoxWriter
from guard.link.client import LinkClient, LinkSettings, Phase
from guard.link.protocol import ChildExit, Pressure, Refused, Role, Welcome
from guard.model import Known
from sidecar.sample import SightKind
from sidecar.sight.handover import HandoverLimits
from tests.guard.box.boxes import ABOUT
from tests.sidecar.eventually import eventually
from tests.sidecar.sight.handovers import (
    RawClient,
    handover,
    life_of,
    open_descriptors,
    replaced,
    serving,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the server listens."""
    return tmp_path / "shared" / "link.sock"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps, younger than this one."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def _box(path: Path, session: str = "session-1") -> BoxWriter:
    return BoxWriter.create(str(path.parent / "boxes"), life_of(session=session), ABOUT)


async def test_a_guard_is_seen_with_levels_files_pidfd_and_box(path: Path) -> None:
    """Everything that was handed over can be read on, and the guard is welcomed by name of release."""
    async with serving(path) as (server, heard):
        box = _box(path)
        with RawClient(path) as client:
            client.hand_over(handover(box_fd=box.fd))
            assert await client.answer() == Welcome("9.9")
            ((model, process),) = heard.seen
            assert server.models == (model,)
            assert (model.name, model.kind) == ("model", SightKind.HANDOVER)
            assert list(range(len(model.levels))) == [level.depth for level in model.levels]
            assert (life_of(), os.getuid(), "serve") == (process.life, process.uid, process.command)
            assert {"status", "stat", "statm", "io"} == set(process.files)
            files = [*process.files.values(), *(file for level in model.levels for file in level.files.values())]
            assert all(isinstance(file.read(), Known) for file in files)
            assert process.box is not None
            assert isinstance(process.box.read(), Known)
            assert process.pidfd is not None
        assert not heard.refused
        box.close()


async def test_processes_of_one_cgroup_are_one_model_oldest_first(path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """The second process adds no level descriptors, and the older one is the main process though it came later."""
    async with serving(path) as (server, heard):
        with RawClient(path) as first, RawClient(path) as second:
            first.hand_over(handover(pid=sleeper.pid, session="young"))
            await first.answer()
            before = open_descriptors()
            second.hand_over(handover())
            await second.answer()
            await eventually(lambda: len(heard.seen) == 2, "both")
            (model,) = server.models
            assert [os.getpid(), sleeper.pid] == [process.life.pid for process in model.processes]
            new = [target for fd, target in open_descriptors().items() if fd not in before]
            assert not [target for target in new if "cgroup" in target]


async def test_another_name_in_one_cgroup_is_another_model(path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """Two servers on a plain host are two models; a second hand-over of a process keeps its first name."""
    async with serving(path) as (server, heard):
        with RawClient(path) as first, RawClient(path) as second, RawClient(path) as again:
            first.hand_over(handover(pid=sleeper.pid), name="alpha")
            await first.answer()
            second.hand_over(handover(session="other"), name="beta")
            await second.answer()
            again.hand_over(handover(session="other"), name="alpha")
            await again.answer()
            await eventually(lambda: len(heard.seen) == 3, "all three")
            alpha, beta = server.models
            assert (alpha.name, [process.life.pid for process in alpha.processes]) == ("alpha", [sleeper.pid])
            assert (beta.name, [process.life.pid for process in beta.processes]) == ("beta", [os.getpid()])
            assert alpha.levels[0].id == beta.levels[0].id
            server.release(alpha)
            assert server.models == (beta,)
            assert all(isinstance(file.read(), Known) for file in beta.levels[0].files.values())


@pytest.mark.parametrize("order", [(Role.RUNNER, Role.GUARD), (Role.GUARD, Role.RUNNER)])
async def test_runner_and_guard_of_one_process_are_one(path: Path, order: tuple[Role, Role]) -> None:
    """Whoever comes first: the guard's session and box, and the runner's exit status, belong to one process."""
    async with serving(path) as (server, heard):
        box = _box(path, "guard")
        with RawClient(path) as one, RawClient(path) as other:
            clients = dict(zip(order, (one, other), strict=True))
            for role in order:
                fd = box.fd if role is Role.GUARD else None
                clients[role].hand_over(handover(role=role, session=role.value, box_fd=fd))
                await clients[role].answer()
            clients[Role.RUNNER].send(ChildExit(life_of(session="runner"), 9))
            await eventually(lambda: heard.exits, "the exit status")
            (model,) = server.models
            (process,) = model.processes
            assert [process, process] == [seen for _, seen in heard.seen]
            assert process.life.session == "guard"
            assert process.box is not None
            assert process.wait_status_from_runner == 9
            assert [(process.life, 9)] == heard.exits
            clients[Role.RUNNER].socket.close()
            await asyncio.sleep(0)
            clients[Role.GUARD].socket.close()
            await eventually(lambda: heard.lost, "the loss")
            assert [(model, process)] == heard.lost
        box.close()


async def test_a_box_of_a_later_guard_replaces_the_earlier_one(path: Path) -> None:
    """A process that called exec has a new guard and a new box; the old descriptor is closed."""
    async with serving(path) as (server, heard):
        for session in ("before-exec", "after-exec"):
            box = _box(path, session)
            with RawClient(path) as client:
                client.hand_over(handover(session=session, box_fd=box.fd))
                await client.answer()
            box.close()
        await eventually(lambda: len(heard.lost) == 2, "both to leave")
        (process,) = server.models[0].processes
        assert process.life.session == "after-exec"
        ours = str(path.parent / "boxes")
        boxes = [target for target in open_descriptors().values() if target.startswith(ours)]
        assert [f"{ours}/after-exec.box"] == boxes


async def test_a_lost_connection_is_no_death_and_a_death_shows_at_the_pidfd(
    path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """Descriptors stay readable after the client left; the pidfd becomes readable when the process ends."""
    async with serving(path) as (server, heard):
        with RawClient(path) as client:
            client.hand_over(handover(pid=sleeper.pid, role=Role.RUNNER))
            await client.answer()
        await eventually(lambda: heard.lost, "the loss")
        ((model, seen),) = heard.lost
        assert isinstance(seen.files["stat"].read(), Known)
        assert seen.pidfd is not None
        assert not select.select([seen.pidfd], [], [], 0)[0]
        sleeper.kill()
        sleeper.wait()
        assert select.select([seen.pidfd], [], [], 10)[0]
        assert isinstance(model.levels[0].files["memory.stat"].read(), Known)
        server.release(model, seen)
        assert model.processes == []
        server.release(model)
        assert server.models == ()


async def test_a_process_that_died_meanwhile_is_still_taken(path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """A server that crashes right after its hello leaves its last levels and its box to be read."""
    given = handover(pid=sleeper.pid, role=Role.RUNNER)
    sleeper.kill()
    sleeper.wait()
    async with serving(path) as (_server, heard):
        with RawClient(path) as client:
            client.hand_over(given)
            assert await client.answer() == Welcome("9.9")
            assert heard.seen[0][1].pidfd is not None


async def test_pressure_reaches_guards_and_no_runner(path: Path) -> None:
    """A notice goes to every guard of the model, in words."""
    async with serving(path) as (server, _heard):
        with RawClient(path) as guard, RawClient(path) as runner:
            guard.hand_over(handover())
            await guard.answer()
            runner.hand_over(handover(role=Role.RUNNER, session="runner"))
            await runner.answer()
            notice = Pressure("warning", "8 s to the limit of /pod")
            assert server.send_pressure(server.models[0], notice) == 1
            assert await guard.answer() == notice
            with pytest.raises(BlockingIOError):
                runner.socket.recv(100)


async def test_a_guard_that_does_not_read_holds_up_nobody(path: Path) -> None:
    """Notices beyond a full socket are dropped; another client is still welcomed."""
    async with serving(path) as (server, _heard):
        with RawClient(path) as deaf, RawClient(path) as other:
            deaf.hand_over(handover())
            await eventually(lambda: server.models, "the model")
            (model,) = server.models
            sent = [server.send_pressure(model, Pressure("warning", "x" * 1000)) for _ in range(3000)]
            assert sent[-1] == 0
            other.hand_over(handover(session="other"))
            assert isinstance(await other.answer(), Welcome)


async def test_nothing_stays_open(path: Path) -> None:
    """After many hand-overs, good and bad, and close, the same descriptors are open as before."""
    before = open_descriptors()
    async with serving(path) as (_server, heard):
        box = _box(path)
        for number in range(10):
            with RawClient(path) as client:
                given = handover(session=f"s{number}", box_fd=box.fd)
                client.hand_over(given if number % 2 else replaced(given, "proc/stat", os.open("/dev/zero", 0)))
                await client.answer()
        assert len(heard.seen) == 5
        box.close()
    await eventually(lambda: open_descriptors() == before, "every descriptor to be closed")


async def test_only_allowed_users_may_hand_over(path: Path) -> None:
    """The credentials are the kernel's, so a user that is not allowed is refused before it says a word."""
    limits = HandoverLimits(allowed_uids=frozenset({os.getuid() + 1}))
    async with serving(path, limits) as (_server, heard):
        with RawClient(path) as client:
            answer = await client.answer()
            assert isinstance(answer, Refused)
            assert f"user {os.getuid()} may not" in answer.reason
            assert answer.reason == heard.refused[0]


async def test_either_side_may_start_first_and_the_sidecar_may_restart(path: Path) -> None:
    """A client finds a sidecar that comes later, and finds the next one after the first has gone."""
    notices: list[Pressure] = []
    settings = LinkSettings(str(path), first_wait_seconds=0.01, longest_wait_seconds=0.05)
    client = LinkClient(settings, handover, notices.append)
    client.start()
    await eventually(lambda: client.state.phase is Phase.WAITING and client.state.detail, "a first try")
    for _ in range(2):
        async with serving(path) as (server, heard):
            await eventually(lambda: client.state.phase is Phase.CONNECTED, "the welcome")
            assert heard.seen
            server.send_pressure(server.models[0], Pressure("warning", "now"))
            await eventually(lambda: notices, "the notice")
            notices.clear()
        await eventually(lambda: client.state.phase is Phase.WAITING, "the loss to be noticed")
    client.close()
