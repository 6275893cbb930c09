"""`oomguard check` against answers, silence and nobody at all."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.guard.hosts import Ended, environment, run_command

PASS = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"
FAIL = b"HTTP/1.1 503 Service Unavailable\r\n\r\nfailed: hung; nothing moves\n"
OTHER = b"HTTP/1.1 404 Not Found\r\n\r\nno such page\n"


@contextmanager
def answering(answer: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """Serve one connection; None keeps it open without a word. Gives the URL and what was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(4096))
                if answer is None:
                    done.wait(30)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        finally:
            done.set()
            thread.join(20)


def check(shared: Path, *words: str) -> Ended:
    """Run the command."""
    return run_command([sys.executable, "-m", "guard.cli", "check", *words], environment(shared))


@pytest.mark.parametrize(("answer", "status"), [(PASS, 0), (FAIL, 1)])
def test_the_status_is_the_sidecars_answer(tmp_path: Path, answer: bytes, status: int) -> None:
    """200 is 0, 503 is 1, and what the sidecar said is shown."""
    with answering(answer) as (url, asked):
        ended = check(tmp_path, "--url", url)
    assert ended.returncode == status
    assert ended.out == answer.partition(b"\r\n\r\n")[2].decode()
    assert asked[0].startswith(b"GET /livez HTTP/1.")


def test_it_asks_what_it_is_told_to(tmp_path: Path) -> None:
    """Question and model are in the path."""
    with answering(PASS) as (url, asked):
        assert check(tmp_path, "readyz", "--url", f"{url}/", "--model", "llama").returncode == 0
    assert asked[0].startswith(b"GET /readyz/llama HTTP/1.")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("livez",), 0),
        (("readyz",), 1),
        (("startupz",), 1),
        (("livez", "--if-unreachable", "fail"), 1),
        (("readyz", "--if-unreachable", "ok"), 0),
    ],
)
@pytest.mark.parametrize("answer", [OTHER, None], ids=["no sidecar", "silent"])
def test_a_sidecar_that_cannot_be_asked_kills_nobody(
    tmp_path: Path, words: tuple[str, ...], status: int, answer: bytes | None
) -> None:
    """Without an answer liveness passes and says so; readiness and start-up fail; the flag decides otherwise."""
    with answering(answer) as (url, _):
        ended = check(tmp_path, *words, "--url", url, "--timeout", "0.3")
    assert ended.returncode == status
    assert "the sidecar cannot be asked" in ended.err


def test_any_name_that_a_model_may_have_can_be_asked_about(tmp_path: Path) -> None:
    """Spaces, letters of all scripts and what a path gives a meaning to arrive as they are."""
    with answering(PASS) as (url, asked):
        assert check(tmp_path, "--url", url, "--model", "a/b c?d#é%").returncode == 0
    assert asked[0].startswith(b"GET /livez/a/b%20c%3Fd%23%C3%A9%25 HTTP/1.")


def test_a_host_that_cannot_be_is_not_the_models_fault(tmp_path: Path) -> None:
    """A name that no host can have is a sidecar that cannot be asked."""
    ended = check(tmp_path, "--url", "http://a..b:1")
    assert (ended.returncode, ended.out) == (0, "")
    assert ended.err.startswith("oomguard check: the sidecar cannot be asked: ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(("answer", "status"), [(PASS, 0), (FAIL, 1)])
@pytest.mark.parametrize("outputs", [">&- 2>&-", ">/dev/full 2>/dev/full"])
def test_outputs_that_take_nothing_change_no_answer(tmp_path: Path, answer: bytes, status: int, outputs: str) -> None:
    """The exit status is the sidecar's word, whatever becomes of the text."""
    with answering(answer) as (url, _):
        command = ["sh", "-c", f'exec "$@" {outputs}', "sh", sys.executable, "-m", "guard.cli", "check", "--url", url]
        assert run_command(command, environment(tmp_path)).returncode == status


@pytest.mark.lab
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_name_that_nobody_resolves_takes_no_longer_than_it_may(tmp_path: Path) -> None:
    """A silent name server holds the check up for its timeout, not for that of the resolver."""
    settings = tmp_path / "resolv.conf"
    settings.write_text("nameserver 127.0.0.253\noptions timeout:30 attempts:1\n")
    masked = ["unshare", "-m", "sh", "-c", f'mount --bind {settings} /etc/resolv.conf && exec "$@"', "sh"]
    asking = [sys.executable, "-m", "guard.cli", "check", "--url", "http://sidecar:9475", "--timeout", "0.5"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.253", 53))
        began = time.monotonic()
        ended = run_command([*masked, *asking], environment(tmp_path))
    assert time.monotonic() - began < 20
    assert (ended.returncode, ended.out) == (0, "")
    assert (
        ended.err == "oomguard check: the sidecar cannot be asked: the address of sidecar is not found within 0.5 s\n"
    )


def test_nobody_listens(tmp_path: Path) -> None:
    """A dead sidecar refuses at once; a model is not failed for it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ended = check(tmp_path, "--url", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert ended.returncode == 0
    assert "refused" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("health",),
        ("--url", "https://127.0.0.1:1"),
        ("--url", "127.0.0.1:1"),
        ("--url", "http://h:99999"),
        ("--url", "http://h:1/path"),
        ("--timeout", "0"),
        ("--timeout", "soon"),
        ("--model", "a b\n"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_two(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A command line that cannot be meant ends with 2, in words."""
    ended = check(tmp_path, *words)
    assert ended.returncode == 2
    assert "Traceback" not in ended.err
