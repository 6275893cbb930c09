"""How large a load is, before it begins: from the headers of its file.

Of a file below 1 MiB the headers are not read: that would take as long as the load itself, which is over before
anybody could ask how far it is. Its size stands for its tensors then.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from guard.footprint import Footprint

SMALL_BYTES: Final = 1 << 20


def small_size(path: str) -> int | None:
    """Give the size of a file that is too small to look into; None for any other, and for what is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - no path object is made of a host's name
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) and found.st_size < SMALL_BYTES else None


def unseen() -> AbstractContextManager[object]:
    """While we ask tensors for their sizes: the host's function modes and tensor classes see none of our calls.

    Also of use with parameters that have no shape yet (`torch.nn.LazyLinear`), whose class refuses every question.
    """
    torch: Any = sys.modules.get("torch._C")
    return nullcontext() if torch is None else torch.DisableTorchFunction()


def sizes(path: str | None) -> tuple[Footprint | None, int | None]:
    """Give what the headers say where they were read, and the bytes of the tensors where they are known."""
    if path is None:
        return None, None
    small = small_size(path)
    if small is not None:
        return None, small
    from guard.footprint import FootprintError, footprint

    try:
        found = footprint(path)
    except FootprintError:  # the call itself will say what is wrong with it
        return None, None
    return found, found.tensor_bytes
