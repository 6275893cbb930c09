"""What our commands print. An output that is closed, full or cut off is no traceback and changes no exit status."""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from guard.lastwords import write_stderr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


def complain(text: str) -> None:
    """Write to standard error, where it takes anything; the bytes go at once, so none is left for the exit."""
    with contextlib.suppress(OSError):
        write_stderr(text.encode("utf-8", "backslashreplace"))


def say(text: str) -> None:
    """Write to standard output, also where it has fewer letters than the text, and into a pipe that closes early.

    Raises:
        OSError: it takes nothing.
    """
    stream = sys.stdout
    if stream is None:  # the command was started without it
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    try:
        stream.buffer.write(_encoded(text, stream))
        stream.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # or the flush at the exit fails once more
        if not isinstance(error, BrokenPipeError):
            raise


def _encoded(text: str, stream: TextIO) -> bytes:
    """As the stream would have it; a letter that it refuses (a file name that is no UTF-8) is spelt out."""
    try:
        return text.encode(stream.encoding, stream.errors or "strict")
    except UnicodeEncodeError:
        return text.encode(stream.encoding, "backslashreplace")
