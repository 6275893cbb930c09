"""Making the socket of the shared directory."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import stat
from pathlib import Path
from typing import Final

from guard.kernel.reader import KeptFile
from guard.model import Known

_SOCKET_MODE: Final = 0o666
_DIRECTORY_MODE: Final = 0o1777


class ListenError(OSError):
    """The socket cannot be made. The text says why and what to do."""


def make_directory(directory: Path) -> None:
    """Make the shared directory, open to every user like /tmp, where no volume put it."""
    if directory.exists() and not directory.is_dir():
        raise ListenError(errno.ENOTDIR, f"{directory} is no directory: set OOMGUARD_DIR to the shared directory")
    if not directory.is_dir():
        directory.mkdir(parents=True)
        directory.chmod(_DIRECTORY_MODE)


def magic_of(directory: Path) -> int | None:
    """Which file system the directory lies on."""
    kept = KeptFile(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), str(directory))
    try:
        magic = kept.fs_magic()
    finally:
        kept.close()
    return magic.value if isinstance(magic, Known) else None


def listen(path: Path, kind: socket.SocketKind = socket.SOCK_SEQPACKET) -> socket.socket:
    """Listen under a temporary name, then take the name: at no moment is there a socket that answers nobody."""
    listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        listener.bind(str(temporary))
        temporary.chmod(_SOCKET_MODE)
        listener.listen(socket.SOMAXCONN)
        _refuse_if_taken(path, kind)
        temporary.rename(path)
    except OSError:
        listener.close()
        temporary.unlink(missing_ok=True)
        raise
    return listener


def _refuse_if_taken(path: Path, kind: socket.SocketKind) -> None:
    """Only a socket that nobody listens on may be replaced."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(errno.EEXIST, f"{path} is there and is no socket: remove it")
    with socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except BlockingIOError:
            pass  # somebody listens, and has a full queue
    raise ListenError(errno.EADDRINUSE, f"another sidecar listens at {path}: stop it, or use another directory")
