"""`oomguard check`: ask the sidecar about the model, for health checks that run a command and have no curl.

It may run inside the model's container, within its memory limit and while it is being reclaimed: so it is the standard
library's sockets alone, no http.client, and it imports nearly nothing else of the guard.

House rule: a sidecar that cannot be asked is not the model's fault. Liveness kills, so it then passes, and says so on
standard error; readiness and start-up do not kill, and fail. `--if-unreachable` decides otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import threading
import time

from guard.saying import complain, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PASSED, FAILED, USAGE = 0, 1, 2
QUESTIONS = ("livez", "readyz", "startupz")
_SLACK_SECONDS = 0.2  # the thread keeps the time by itself, once it has an address
_LIMIT = 4096  # bytes of an answer; a line without `?verbose` is far shorter
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")
_ANSWERS = {b"200": PASSED, b"503": FAILED}


class _NoAnswerError(Exception):
    """The sidecar could not be asked, or what answered is no sidecar."""


def main(words: Sequence[str]) -> int:
    """Ask one question; 0 passed, 1 failed, 2 wrong usage. What the sidecar said goes to standard output."""
    arguments = _parser().parse_args(words)
    path = f"/{arguments.question}/{_quoted(arguments.model)}" if arguments.model else f"/{arguments.question}"
    try:
        status, said = _ask_in_time(arguments.url, path, arguments.timeout)
    except (OSError, UnicodeError, _NoAnswerError) as error:  # UnicodeError: no host can have such a name
        lenient = arguments.if_unreachable == "ok" or (
            arguments.if_unreachable is None and arguments.question == "livez"
        )
        complain(f"oomguard check: the sidecar cannot be asked: {error}\n")
        return PASSED if lenient else FAILED
    with contextlib.suppress(OSError):  # the status is the answer
        say(said + "\n")
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oomguard check",
        description="Asks the sidecar about the model. Exit status: 0 passed, 1 failed, 2 wrong usage. Where the "
        "sidecar cannot be asked, livez passes and readyz and startupz fail (see --if-unreachable); a line on standard "
        "error says so.",
    )
    parser.add_argument("question", nargs="?", choices=QUESTIONS, default="livez", help="what to ask (default: livez)")
    parser.add_argument(
        "--url", type=_address, default=("127.0.0.1", 9475), help="the sidecar (default: http://127.0.0.1:9475)"
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        type=_name,
        help="ask about this model alone (default: every model that has not ended for good)",
    )
    parser.add_argument("--timeout", metavar="SECONDS", type=_seconds, default=3.0, help="for all of it (default: 3)")
    parser.add_argument(
        "--if-unreachable",
        choices=("ok", "fail"),
        help="what a sidecar that cannot be asked means (default: ok for livez, which must not kill for it, else fail)",
    )
    return parser


def _address(text: str) -> tuple[str, int]:
    """Read `http://HOST[:PORT][/]`; an IPv6 address stands in brackets."""
    scheme, _, rest = text.partition("://")
    host, colon, port = rest.rstrip("/").rpartition(":")
    if not colon or port.endswith("]"):
        host, port = rest.rstrip("/"), "9475"
    if scheme != "http" or not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not http://HOST:PORT")
    return host.strip("[]"), int(port)


def _name(text: str) -> str:
    if not text or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a model")
    return text


def _quoted(name: str) -> str:
    """Write a name as a part of a path (RFC 3986); urllib.parse would do it for a megabyte."""
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in name.encode())


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) < 3600:  # noqa: PLR2004 - an hour, past any probe's patience
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, above 0 and below 3600")


def _ask_in_time(address: tuple[str, int], path: str, seconds: float) -> tuple[int, str]:
    """Ask in a thread that is left behind if need be: no timeout bounds the search for a host's address.

    A container engine's own patience is short, and a check that it has to kill counts as a failed model.
    """
    answers: list[tuple[int, str] | Exception] = []

    def work() -> None:
        try:
            answers.append(_ask(address, path, seconds))
        except Exception as error:  # noqa: BLE001 - raised below, by whoever waits
            answers.append(error)

    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # a limit of processes
        return _ask(address, path, seconds)
    thread.join(seconds + _SLACK_SECONDS)
    if not answers:
        raise _NoAnswerError(f"the address of {address[0]} is not found within {seconds:g} s")
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


def _ask(address: tuple[str, int], path: str, seconds: float) -> tuple[int, str]:
    """Make one request within `seconds`; OSError and _NoAnswerError say why there is no answer."""
    deadline = time.monotonic() + seconds
    with socket.create_connection(address, timeout=seconds) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {address[0]}\r\n\r\n".encode())
        data = b""
        while len(data) < _LIMIT:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            chunk = connection.recv(_LIMIT)
            if not chunk:
                break
            data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    status = head[9:12]
    if not head.startswith(b"HTTP/1.") or status not in _ANSWERS:
        raise _NoAnswerError(f"answered {head[:40].decode(errors='replace')!r}")
    return _ANSWERS[status], body.decode("utf-8", "replace").strip()
