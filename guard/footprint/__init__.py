"""What a checkpoint will need, from its headers alone: nothing is loaded, unpickled or mapped.

Bounded: whatever a file claims, at most some MiB of it are read and walked.
"""

from __future__ import annotations

import os

from guard.footprint.folder import read_folder, read_index
from guard.footprint.one_file import read_file
from guard.footprint.values import Footprint, FootprintError, Format, WeightFile, dtype_name

__all__ = ["Footprint", "FootprintError", "Format", "WeightFile", "dtype_name", "footprint"]


def footprint(what: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> Footprint:
    """Read the headers of a file, of the shards of an index, or of the weights in a folder.

    Raises:
        FootprintError: missing, cut off, no weights in it, or of a format that is not known.
    """
    path = os.fsdecode(what)
    if os.path.isdir(path):  # noqa: PTH112 - no path object is made of a host's name
        return Footprint(path, read_folder(path))
    if path.endswith(".index.json"):
        return Footprint(path, read_index(path))
    return Footprint(path, (read_file(path),))
