"""The folder of boxes and end notes in the shared directory."""

# ruff: noqa: PTH101, PTH102 - pathlib is memory that the runner does not need

from __future__ import annotations

import contextlib
import os
from typing import Final

_MODE: Final = 0o1777  # like /tmp: every user of the pod may add a file, none may remove another's


def make_folder(path: str) -> None:
    """Make it, open to every user; its parent is the shared volume and must exist.

    Raises:
        OSError: it is not there and cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        os.chmod(path, _MODE)  # not through mkdir's mode, which the umask would cut
