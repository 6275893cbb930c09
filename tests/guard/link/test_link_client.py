"""The guard's thread: it finds the sidecar, never makes the host wait, and never lets it see an exception."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guard.kernel.reader import Reader
from guard.link.client import LinkClient, LinkSettings, LinkState, Phase
from guard.link.handover import Handover, Who, gather
from guard.link.protocol import (
    LIMIT_BYTES,
    ChildExit,
    Hello,
    Message,
    Pressure,
    Refused,
    Role,
    Welcome,
    decode,
    encode,
)
from guard.model import LifeId
from tests.lab.kit.places import CHECKOUT, PYTHON
from tests.lab.kit.wait import until

LIFE = LifeId("boot", os.getpid(), 1, "s")
WHO = Who(name="m", life=LIFE, parent_session=None, command="serve", role=Role.GUARD)
EXIT = ChildExit(LIFE, 9)


class Sidecar:
    """A listener that takes one connection at a time and says what it is told to."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(path))
        self.listener.listen(8)
        self.listener.settimeout(20)

    def accept(self, answer: Message | None) -> tuple[socket.socket, Hello, list[int]]:
        """Take a connection and its hello, close what came with it, answer."""
        link, _ = self.listener.accept()
        link.settimeout(20)
        raw, descriptors, _, _ = socket.recv_fds(link, LIMIT_BYTES, 253)
        for fd in descriptors:
            os.close(fd)
        hello = decode(raw)
        assert isinstance(hello, Hello)
        if answer is not None:
            link.send(encode(answer))
        return link, hello, descriptors


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the sidecar listens."""
    return tmp_path / "link.sock"


@pytest.fixture
def sidecar(path: Path) -> Iterator[Sidecar]:
    """A listening sidecar."""
    made = Sidecar(path)
    with made.listener:
        yield made


@pytest.fixture
def notices() -> list[Pressure]:
    """What the client heard."""
    return []


@pytest.fixture
def client(path: Path, notices: list[Pressure]) -> Iterator[LinkClient]:
    """A client that is not started."""
    made = LinkClient(_settings(path), lambda: gather(Reader(), WHO), notices.append)
    yield made
    made.close()
    until(lambda: not _threads(), 30, "the thread to end")


def _settings(path: Path) -> LinkSettings:
    return LinkSettings(str(path), first_wait_seconds=0.01, longest_wait_seconds=0.02, refused_wait_seconds=0.05)


def _open_count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "oomguard-link"]


def _connected(client: LinkClient) -> None:
    until(lambda: client.state.phase is Phase.CONNECTED, 30, "the welcome")


def test_nothing_happens_before_start(client: LinkClient, sidecar: Sidecar) -> None:
    """Making a client opens no socket and starts no thread."""
    assert LinkState(Phase.IDLE) == client.state
    assert _threads() == []
    sidecar.listener.settimeout(0)
    with pytest.raises(BlockingIOError):
        sidecar.listener.accept()


def test_start_hands_over_and_is_done_once(client: LinkClient, sidecar: Sidecar) -> None:
    """One thread, one hello with its descriptors, and our own copies closed."""
    before = _open_count()
    client.start()
    client.start()
    link, hello, descriptors = sidecar.accept(Welcome("1.0"))
    _connected(client)
    assert (LIFE, len(descriptors)) == (hello.life, len(hello.descriptors))
    assert client.state.detail == "sidecar 1.0"
    assert len(_threads()) == 1
    assert before + 2 == _open_count(), "the two ends of the connection"
    link.close()


def test_pressure_arrives_and_unknown_kinds_do_not(
    client: LinkClient, sidecar: Sidecar, notices: list[Pressure]
) -> None:
    """Notices come in order; what a newer sidecar may say is passed over."""
    client.start()
    link, _, _ = sidecar.accept(Welcome("1.0"))
    link.send(encode(Pressure("warning", "one")))
    link.send(b'{"v":1,"kind":"dance"}')
    link.send(encode(Pressure("none", "over")))
    until(lambda: len(notices) == 2, 30, "both notices")
    assert [Pressure("warning", "one"), Pressure("none", "over")] == notices
    assert client.state.phase is Phase.CONNECTED
    link.close()


@pytest.mark.parametrize("word", [b"garbage", b'{"v":2,"kind":"pressure"}', b""], ids=["garbage", "version", "end"])
def test_a_connection_that_goes_wrong_is_made_anew(client: LinkClient, sidecar: Sidecar, word: bytes) -> None:
    """Malformed messages and a sidecar that leaves lead to a new connection, not to an end."""
    client.start()
    link, _, _ = sidecar.accept(Welcome("1.0"))
    if word:
        link.send(word)
    link.close()
    again, _, _ = sidecar.accept(Welcome("2.0"))
    until(lambda: client.state.detail == "sidecar 2.0", 30, "the second welcome")
    again.close()


def test_a_refusal_is_kept_for_status_and_tried_again_later(client: LinkClient, sidecar: Sidecar) -> None:
    """The reason can be read; after a longer pause the client asks again."""
    client.start()
    link, _, _ = sidecar.accept(Refused("too many connections"))
    link.close()
    until(lambda: client.state == LinkState(Phase.REFUSED, "too many connections"), 30, "the refusal")
    link, _, _ = sidecar.accept(Welcome("1.0"))
    _connected(client)
    link.close()


def test_a_refusal_before_the_hello_was_read_is_still_heard(client: LinkClient, sidecar: Sidecar) -> None:
    """A sidecar that hangs up with our hello unread leaves its last word behind a reset."""
    client.start()
    link, _ = sidecar.listener.accept()
    until(lambda: link.recv(1, socket.MSG_PEEK), 30, "the hello to be there")
    link.send(encode(Refused("not now")))
    link.close()
    until(lambda: client.state == LinkState(Phase.REFUSED, "not now"), 30, "the refusal")


def test_a_sidecar_that_never_answers_is_given_up(path: Path, sidecar: Sidecar) -> None:
    """A stuck sidecar costs the thread a bounded time and the host nothing."""
    client = LinkClient(
        LinkSettings(str(path), first_wait_seconds=0.01, handshake_seconds=1.0),
        lambda: gather(Reader(), WHO),
        lambda _: None,
    )
    client.start()
    first, _, _ = sidecar.accept(None)
    second, _, _ = sidecar.accept(Welcome("1.0"))
    _connected(client)
    client.close()
    first.close()
    second.close()
    until(lambda: not _threads(), 30, "the thread to end")


def test_an_error_of_the_hosts_side_does_not_end_the_thread(path: Path, sidecar: Sidecar) -> None:
    """A hand-over or callback that raises shows in the state, and the client goes on."""
    faults = iter([RuntimeError("no /proc"), None])

    def make() -> Handover:
        fault = next(faults, None)
        if fault is not None:
            raise fault
        return gather(Reader(), WHO)

    seen: list[Pressure] = []

    def on_message(notice: Pressure) -> None:
        seen.append(notice)
        raise KeyError(notice.reason)

    client = LinkClient(_settings(path), make, on_message)
    client.start()
    broken, _ = sidecar.listener.accept()
    assert broken.recv(10) == b""
    for _ in range(2):
        link, _, _ = sidecar.accept(Welcome("1.0"))
        link.send(encode(Pressure("warning", "x")))
        assert link.recv(10) == b""
        link.close()
    assert len(seen) == 2
    client.close()
    broken.close()
    until(lambda: not _threads(), 30, "the thread to end")


def test_sending_works_once_connected_and_waits_a_little_before(client: LinkClient, sidecar: Sidecar) -> None:
    """A message sent before the sidecar has answered goes out when it does, if that is in time."""
    assert client.send(EXIT, within_seconds=0.01) is False
    client.start()
    sent: list[bool] = []
    thread = threading.Thread(target=lambda: sent.append(client.send(EXIT, within_seconds=10)))
    thread.start()
    link, _, _ = sidecar.accept(Welcome("1.0"))
    assert decode(link.recv(LIMIT_BYTES)) == EXIT
    thread.join()
    assert sent == [True]
    link.close()


def test_sending_to_a_sidecar_that_does_not_read_gives_up_in_time(client: LinkClient, sidecar: Sidecar) -> None:
    """With a full socket a send ends at its deadline and says that it failed."""
    client.start()
    link, _, _ = sidecar.accept(Welcome("1.0"))
    _connected(client)
    while client.send(EXIT, within_seconds=1.0):
        pass
    start = time.monotonic()
    assert client.send(EXIT, within_seconds=0.1) is False
    assert 0.09 < time.monotonic() - start < 30
    link.close()


def test_a_closed_client_is_silent(client: LinkClient, sidecar: Sidecar) -> None:
    """After close the connection ends, nothing can be sent, and it cannot be started again."""
    client.start()
    link, _, _ = sidecar.accept(Welcome("1.0"))
    _connected(client)
    client.close()
    assert link.recv(10) == b""
    assert client.send(EXIT) is False
    client.start()
    until(lambda: not _threads(), 30, "the thread to end")
    assert client.state.phase is Phase.CLOSED
    link.close()


def test_a_fork_leaves_the_parents_connection_alone(client: LinkClient, sidecar: Sidecar, path: Path) -> None:
    """The child drops its copies and makes a client of its own; the parent goes on to hear notices."""
    client.start()
    link, _, _ = sidecar.accept(Welcome("1.0"))
    _connected(client)
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(20)
            client.abandon()
            own = LinkClient(_settings(path), lambda: gather(Reader(), WHO), lambda _: None)
            own.start()
            sent = own.send(EXIT, within_seconds=15)
            os._exit(7 if sent and client.send(EXIT) is False else 1)
        finally:
            os._exit(2)
    of_child, _, _ = sidecar.accept(Welcome("1.0"))
    assert decode(of_child.recv(LIMIT_BYTES)) == EXIT
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert of_child.recv(10) == b""
    assert client.send(EXIT) is True
    assert decode(link.recv(LIMIT_BYTES)) == EXIT
    link.close()
    of_child.close()


AT_EXIT = """
import atexit, random, sys
from guard.kernel.reader import Reader
from guard.link.client import LinkClient, LinkSettings
from guard.link.handover import Who, gather
from guard.link.protocol import ChildExit, Role
from guard.model import LifeId
random.seed(1)
life = LifeId("boot", 1, 1, "s")
who = Who(name="m", life=life, parent_session=None, command="serve", role=Role.RUNNER)
client = LinkClient(LinkSettings(sys.argv[1], first_wait_seconds=0.01), lambda: gather(Reader(), who), lambda _: None)
client.start()
atexit.register(lambda: print(client.send(ChildExit(life, 9), within_seconds=10)))
print(random.random())
sys.exit(3)
"""


def _run_at_exit(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PYTHON, "-W", "error", "-c", AT_EXIT, str(path)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_last_message_goes_out_at_exit(sidecar: Sidecar, path: Path) -> None:
    """From an exit handler, and even if the sidecar answers only then; the host's seeded random numbers are its own."""
    process = _run_at_exit(path)
    link, _, _ = sidecar.accept(Welcome("1.0"))
    assert decode(link.recv(LIMIT_BYTES)) == ChildExit(LifeId("boot", 1, 1, "s"), 9)
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ("0.13436424411240122\nTrue\n", "", 3)
    link.close()
