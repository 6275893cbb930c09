"""The two places where a failure is told before the process ends: standard error and the termination log."""

from __future__ import annotations

import os
import select
import stat
import sys

PATH_VARIABLE = "OOMGUARD_TERMINATION_LOG"
DEFAULT_PATH = "/dev/termination-log"
PATIENCE_MS = 100
"""Who reads standard error may be slow, as the whole machine may be; who does not read for this long has stopped."""
LIMIT_BYTES = 4096  # what the kubelet reads (kubernetes, pkg/apis: TerminationMessagePath)


def write_stderr(line: bytes) -> None:
    """Write one line to descriptor 2 in one call, so that it stays whole between other writers.

    Nothing is written where the process started without standard error: descriptor 2 may then be anything. And nothing
    into a pipe that nobody reads: the server must not hang in our write, nor die of its SIGPIPE. (A pipe is writable
    while a line of PIPE_BUF fits whole, pipe(7).)
    """
    original = sys.__stderr__
    if original is not None and not original.closed and original.fileno() == 2 and _takes(2):  # noqa: PLR2004 - the descriptor
        os.write(2, line)


def _takes(descriptor: int) -> bool:
    """Whether a line can be written without waiting, now or within a moment."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    found = poll.poll(PATIENCE_MS)
    return bool(found) and not found[0][1] & (select.POLLERR | select.POLLHUP | select.POLLNVAL)


def write_termination_log(text: bytes) -> None:
    """Write to the termination log if it exists, is a regular file and is still empty.

    It is never created (on a host that is no container it would be a stray file), and what the server or an earlier
    failure wrote there stays.
    """
    path = os.environ.get(PATH_VARIABLE) or DEFAULT_PATH
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return
    try:
        facts = os.fstat(fd)
        if stat.S_ISREG(facts.st_mode) and facts.st_size == 0:
            os.write(fd, text[:LIMIT_BYTES])
    finally:
        os.close(fd)
