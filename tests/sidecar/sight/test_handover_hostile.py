"""Wrong and hostile clients: each gets a reason, leaves nothing open and holds up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from guard.kernel.values import CgroupVersion
from guard.link.handover import Handover
from guard.link.protocol import (
    LIMIT_BYTES,
    ChildExit,
    LevelNote,
    Refused,
    Role,
    Welcome,
    encode,
)
from sidecar.sight.handover import HandoverLimits
from tests.guard.box.boxes import make
from tests.sidecar.eventually import eventually
from tests.sidecar.sight.handovers import (
    Heard,
    RawClient,
    added,
    handover,
    life_of,
    open_descriptors,
    replaced,
    serving,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the server listens."""
    return tmp_path / "link.sock"


async def _reason(client: RawClient, heard: Heard) -> str:
    """The reason of a refusal, which the log must hold too; then the server hangs up."""
    answer = await client.answer()
    assert isinstance(answer, Refused), answer
    assert await client.answer() is None
    assert any(answer.reason in line for line in heard.refused)
    return answer.reason


async def _honest_is_welcome(path: Path) -> None:
    with RawClient(path) as client:
        client.hand_over(handover(session="honest"))
        assert isinstance(await client.answer(), Welcome)


WRONG_BYTES = {
    "garbage": (b"\x00\xff\xfe garbage", "not JSON"),
    "deep": (b"[" * 30_000, "not JSON"),
    "no-version": (b'{"kind":"hello"}', "no version"),
    "list": (b"[1,2]", "no version"),
    "other-version": (b'{"v":2,"kind":"hello"}', "version 1"),
    "no-kind": (b'{"v":1}', "kind"),
    "empty-hello": (b'{"v":1,"kind":"hello"}', "role"),
    "no-hello": (encode(Welcome("x")), "no hello"),
    "unknown-kind": (b'{"v":1,"kind":"dance"}', "no hello"),
    "too-long": (b'{"v":1,' + b" " * LIMIT_BYTES + b"}", "longer than"),
}


@pytest.mark.parametrize("case", WRONG_BYTES)
async def test_wrong_bytes_get_a_reason(path: Path, case: str) -> None:
    """Whatever the first message is, if it is no hello of this version the answer says what is wrong with it."""
    raw, reason = WRONG_BYTES[case]
    async with serving(path) as (_server, heard):
        with RawClient(path) as client:
            client.send(raw, [0, 1])
            assert reason in await _reason(client, heard)
        await _honest_is_welcome(path)


def _open(path: str, flags: int = os.O_RDONLY) -> int:
    return os.open(path, flags | os.O_CLOEXEC)


def _first_level_file(given: Handover) -> str:
    return next(name for name in given.hello.descriptors if name.startswith("levels/0/"))


def _fifo(directory: Path) -> int:
    os.mkfifo(directory / "fifo")
    return _open(str(directory / "fifo"), os.O_RDWR)


def _plain(directory: Path, name: str) -> int:
    (directory / name).write_text("0\n")
    return _open(str(directory / name))


def _two_cgroups(given: Handover) -> Handover:
    """The own level with one file of the level above among its own."""
    fd = given.descriptors[given.hello.descriptors.index("levels/1/memory.stat")]
    return replaced(given, "levels/0/memory.stat", os.dup(fd))


Wrong = Callable[[Handover, Path], Handover]
WRONG_DESCRIPTORS: dict[str, tuple[Wrong, str]] = {
    "one-missing": (lambda g, _: _without_last(g), "announced"),
    "fifo-as-stat": (lambda g, d: replaced(g, "proc/stat", _fifo(d)), "proc/stat does not lie on proc"),
    "zero-as-stat": (lambda g, _: replaced(g, "proc/stat", _open("/dev/zero")), "proc/stat does not lie on proc"),
    "plain-stat": (lambda g, d: replaced(g, "proc/stat", _plain(d, "stat")), "proc/stat does not lie on proc"),
    "plain-level": (
        lambda g, d: replaced(g, _first_level_file(g), _plain(d, "memory.stat")),
        "does not lie on a cgroup file system",
    ),
    "proc-as-level": (lambda g, _: replaced(g, _first_level_file(g), _open("/proc/self/stat")), "cgroup file system"),
    "other-name": (lambda g, _: replaced(g, "proc/io", _open("/proc/self/maps")), "proc/io is the file 'maps'"),
    "writable": (lambda g, _: replaced(g, "proc/stat", _open("/proc/self/comm", os.O_RDWR)), "opened read-only"),
    "path-only": (lambda g, _: replaced(g, "proc/stat", _open("/proc/self/stat", os.O_PATH)), "opened read-only"),
    "directory": (lambda g, _: replaced(g, "proc/stat", _open("/proc/self/task")), "not a regular file"),
    "stat-of-other": (lambda g, _: replaced(g, "proc/stat", _open("/proc/1/stat")), "different processes"),
    "null-as-pidfd": (lambda g, _: replaced(g, "pidfd", _open("/dev/null")), "no pidfd"),
    "pidfd-of-other": (lambda g, _: replaced(g, "pidfd", os.pidfd_open(os.getppid())), "pidfd is of process"),
    "two-of-a-name": (lambda g, _: added(g, "proc/io", _open("/proc/self/io")), "one name"),
    "two-cgroups": (lambda g, _: _two_cgroups(g), "another cgroup"),
    "other-life": (
        lambda g, _: Handover(
            replace(g.hello, life=replace(g.hello.life, start_ticks=g.hello.life.start_ticks + 1)), g.descriptors
        ),
        "not of this life",
    ),
    "two-of-a-depth": (
        lambda g, _: Handover(
            replace(g.hello, levels=(*g.hello.levels, LevelNote("/x", CgroupVersion.V2, 0))), g.descriptors
        ),
        "one depth",
    ),
    "nothing": (lambda g, _: _nothing(g), "proc/stat is missing"),
}


def _without_last(given: Handover) -> Handover:
    os.close(given.descriptors[-1])
    return Handover(given.hello, given.descriptors[:-1])


def _nothing(given: Handover) -> Handover:
    given.close()
    return Handover(replace(given.hello, descriptors=()), ())


@pytest.mark.parametrize("case", WRONG_DESCRIPTORS)
async def test_wrong_descriptors_get_a_reason_and_are_closed(path: Path, tmp_path: Path, case: str) -> None:
    """Each descriptor must be what its name says; if one is not, none is kept."""
    make_wrong, reason = WRONG_DESCRIPTORS[case]
    async with serving(path) as (server, heard):
        before = open_descriptors()
        with RawClient(path) as client:
            client.hand_over(make_wrong(handover(), tmp_path))
            assert reason in await _reason(client, heard)
        assert server.models == ()
        await eventually(lambda: open_descriptors() == before, "every descriptor to be closed")
        await _honest_is_welcome(path)


async def test_unknown_names_are_closed_and_do_no_harm(path: Path) -> None:
    """A newer guard may hand over more than this release knows; messages of unknown kinds are passed over."""
    async with serving(path) as (server, heard):
        with RawClient(path) as client:
            given = added(added(handover(), "gpu/0", _open("/dev/zero")), "levels/77/memory.stat", _open("/dev/zero"))
            client.hand_over(given)
            assert isinstance(await client.answer(), Welcome)
            client.send(b'{"v":1,"kind":"dance","steps":3}')
            assert not [target for target in open_descriptors().values() if target == "/dev/zero"]
            with RawClient(path) as other:
                other.hand_over(handover())
                await other.answer()
            assert heard.refused == []
            assert len(server.models) == 1


@pytest.mark.parametrize("case", ["fifo", "huge", "other-life", "plain", "writable", "other-volume"])
async def test_a_wrong_box_is_left_out_and_the_rest_is_taken(path: Path, tmp_path: Path, case: str) -> None:
    """Without its box a model is still seen; the log says why the box was not taken."""
    if case == "fifo":
        fd = _fifo(tmp_path)
    elif case == "huge":
        with (tmp_path / "huge").open("wb") as file:
            file.truncate(1 << 40)
        fd = _open(str(tmp_path / "huge"))
    elif case == "other-life":
        box = make(tmp_path / "boxes")
        fd = _open(box.path)
        box.close()
    elif case == "writable":
        fd = _open(str(tmp_path / "new"), os.O_RDWR | os.O_CREAT)
    else:
        fd = _plain(tmp_path, "box") if case == "plain" else _open("/proc/self/stat")
    async with serving(path) as (_server, heard):
        with RawClient(path) as client:
            client.hand_over(added(handover(), "box", fd))
            assert isinstance(await client.answer(), Welcome)
            assert heard.seen[0][1].box is None
            assert "box" in heard.refused[0]
            assert not [target for target in open_descriptors().values() if target.startswith(str(tmp_path / "h"))]


async def test_a_client_that_says_nothing_is_hung_up_on(path: Path) -> None:
    """Half a handshake costs one connection for a bounded time."""
    async with serving(path, HandoverLimits(handshake_seconds=0.1)) as (_server, heard):
        with RawClient(path) as client:
            assert "no hello within 0.1 seconds" in await _reason(client, heard)


async def test_a_client_that_leaves_at_once_is_no_event(path: Path) -> None:
    """Connecting and hanging up, as a second sidecar does to see whether one lives, is not reported."""
    async with serving(path) as (_server, heard):
        for _ in range(50):
            RawClient(path).socket.close()
        await _honest_is_welcome(path)
        assert heard.refused == []


async def test_a_flood_of_messages_ends_the_connection_and_not_the_model(path: Path) -> None:
    """A welcomed client that floods is refused; what it handed over stays."""
    async with serving(path) as (server, heard):
        with RawClient(path) as client:
            client.hand_over(handover())
            await client.answer()
            with contextlib.suppress(BlockingIOError, ConnectionError):
                for _ in range(10_000):
                    client.send(b'{"v":1,"kind":"dance"}', [0])
            assert "too many messages" in await _reason(client, heard)
        await eventually(lambda: heard.lost, "the loss")
        assert len(server.models) == 1
        await _honest_is_welcome(path)


async def test_three_hundred_silent_connections_keep_nobody_out(path: Path) -> None:
    """Who says nothing makes room, oldest first, and is told why; an honest guard is welcome all the while."""
    async with serving(path) as (server, heard):
        with contextlib.ExitStack() as crowd:
            clients = []
            for _ in range(300):
                clients.append(crowd.enter_context(RawClient(path)))
                await asyncio.sleep(0)
            answer = await clients[0].answer()
            assert isinstance(answer, Refused)
            assert "has said nothing yet" in answer.reason
            await _honest_is_welcome(path)
            assert len(server._clients) <= HandoverLimits().connections_per_uid
            assert len(heard.refused) < 100, "a flood does not fill the log"
        await eventually(lambda: not server._clients, "the crowd to leave")


@pytest.mark.parametrize("limits", [HandoverLimits(connections_per_uid=2), HandoverLimits(connections=2)])
async def test_who_has_handed_over_makes_room_for_nobody(path: Path, limits: HandoverLimits) -> None:
    """Once the places are taken by models, the next one is told so, and is welcome when one has left."""
    async with serving(path, limits) as (server, heard):
        with RawClient(path) as first, RawClient(path) as second:
            for client in (first, second):
                client.hand_over(handover())
                assert isinstance(await client.answer(), Welcome)
            with RawClient(path) as third:
                assert "too many connections (2 of user" in await _reason(third, heard)
        await eventually(lambda: not server._clients, "the two to leave")
        await _honest_is_welcome(path)


@pytest.mark.parametrize(
    ("role", "session_pid"), [(Role.GUARD, None), (Role.RUNNER, 1)], ids=["from-a-guard", "of-another-process"]
)
async def test_exit_reports_count_only_from_the_runner_of_that_process(
    path: Path, role: Role, session_pid: int | None
) -> None:
    """Nobody can report the exit of a process it did not hand over as its runner."""
    async with serving(path) as (_server, heard):
        with RawClient(path) as client:
            client.hand_over(handover(role=role))
            await client.answer()
            client.send(ChildExit(life_of(session_pid), 9))
            assert "did not hand over as its runner" in await _reason(client, heard)
            assert heard.exits == []


@pytest.mark.parametrize("status", [-1, 1 << 16, "9", None, True])
async def test_an_exit_status_has_sixteen_bits(path: Path, status: object) -> None:
    """What wait(2) cannot have given is malformed."""
    async with serving(path) as (_server, heard):
        with RawClient(path) as client:
            client.hand_over(handover(role=Role.RUNNER))
            await client.answer()
            message = json.loads(encode(ChildExit(life_of(), 9))) | {"wait_status": status}
            client.send(json.dumps(message).encode())
            assert "wait_status" in await _reason(client, heard)


def test_running_out_of_descriptors_is_said_and_passes(path: Path) -> None:
    """At the limit of open files the server waits a second without spinning, and then goes on."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.sidecar.sight.out_of_descriptors", str(path)],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[int]:
    """A descriptor whose file system never answers: a FUSE mount that nobody serves."""
    if os.getuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("a FUSE mount needs root and /dev/fuse")
    libc = ctypes.CDLL(None, use_errno=True)
    mount = tmp_path / "fuse"
    mount.mkdir()
    server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"none", str(mount).encode(), b"fuse", 0, options) != 0:
        os.close(server)
        pytest.skip(f"no FUSE mount: {os.strerror(ctypes.get_errno())}")
    fd = os.open(mount, os.O_PATH | os.O_CLOEXEC)
    try:
        yield os.dup(fd)
    finally:
        os.close(server)  # ends every wait with ENOTCONN
        os.close(fd)
        libc.umount2(str(mount).encode(), 2)


@pytest.mark.lab
async def test_a_descriptor_that_never_answers_holds_up_nobody(path: Path, stuck: int) -> None:
    """While one client's descriptor blocks its thread for ever, others are welcomed, and it is refused in time."""
    async with serving(path, HandoverLimits(handshake_seconds=1.5, connections_per_uid=2)) as (_server, heard):
        with RawClient(path) as client:
            client.hand_over(replaced(handover(), "proc/stat", stuck))
            await _honest_is_welcome(path)
            assert "cannot be looked at in time" in await _reason(client, heard)
        with RawClient(path) as one:
            one.hand_over(handover())
            assert isinstance(await one.answer(), Welcome)
            with RawClient(path) as two:
                answer = await two.answer()
                assert isinstance(answer, Refused)
                assert "too many connections" in answer.reason, "the stuck client keeps its place"
