"""Where things lie and what they are called: the shared directory, the model's name, the command, the release."""

from __future__ import annotations

import os
import posixpath
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

RELEASE = "0.1.0"
DEFAULT_DIRECTORY = "/run/oomguard"
DIRECTORY_VARIABLE = "OOMGUARD_DIR"
NAME_VARIABLE = "OOMGUARD_NAME"
WATCH_VARIABLE = "MEMORY_PRESSURE_WATCH"
"""Of systemd's resource pressure protocol: the file, FIFO or socket that tells a program of memory pressure."""
_NAME_LIMIT = 200
_INTERPRETERS = ("python", "pypy")


def shared_directory() -> str:
    """Give the directory that guard and sidecar share."""
    return os.environ.get(DIRECTORY_VARIABLE) or DEFAULT_DIRECTORY


def boxes_directory(directory: str) -> str:
    """Give the folder of the black boxes."""
    return posixpath.join(directory, "boxes")


def socket_path(directory: str) -> str:
    """Give the socket that the sidecar listens on."""
    return posixpath.join(directory, "link.sock")


def pressure_path(directory: str) -> str:
    """Give the socket on which the sidecar speaks systemd's memory pressure protocol, for any program."""
    return posixpath.join(directory, "pressure.sock")


def own_command() -> tuple[str, ...]:
    """Give the command of this process as it was started, interpreter and its options included."""
    return tuple(sys.orig_argv)


def model_name(command: Sequence[str]) -> str:
    """Give the model's name: OOMGUARD_NAME, else what the command runs (for an interpreter its script or module).

    It is one line without spaces around it, as it stands in pages and logs.
    """
    names = (os.environ.get(NAME_VARIABLE, ""), _name_from(command), "model")
    return next(name for one in names if (name := " ".join(one.split())))[:_NAME_LIMIT]


def _name_from(command: Sequence[str]) -> str:
    if not command:
        return "model"
    first = posixpath.basename(command[0])
    if not first.startswith(_INTERPRETERS):
        return first
    rest = iter(command[1:])
    for word in rest:
        if word == "-m":
            return next(rest, first)
        if word == "-c":
            return first
        if word in ("-W", "-X"):
            next(rest, None)
        elif not word.startswith("-"):
            return posixpath.basename(word)
    return first
