"""Names and byte ranges of the tensors in a safetensors file, from its header alone.

Format (huggingface/safetensors, README "Format"): a little-endian u64 length, that many bytes of JSON
`{name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}}`, then the tensor data.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_LENGTH_BYTES: Final = 8
_HEADER_LIMIT: Final = 32 << 20
"""The library's own cap is 100 MB; real shards stay below 1 MB. Above this we know the file size and no names."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One file. `tensors` maps names to their size in bytes; empty where the header could not be used."""

    total_bytes: int | None
    tensors: Mapping[str, int]


def read_shard(path: str) -> Shard:
    """Read the header of a file; a file that is missing, cut or in another format gives what is known of it.

    The caller's own open of the same file then raises whatever there is to raise.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is one more import in the host
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if length > min(_HEADER_LIMIT, size):
                return Shard(size, {})
            header = file.read(length)
    except OSError:
        return Shard(None, {})
    return parse(header, size)


def parse(header: bytes, file_bytes: int) -> Shard:
    """Take sizes from a header's JSON. Pure and total: anything unexpected gives the file size and no names."""
    try:
        entries = json.loads(header)
        tensors = {
            str(name): int(entry["data_offsets"][1]) - int(entry["data_offsets"][0])
            for name, entry in entries.items()
            if name != "__metadata__"
        }
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError):
        return Shard(file_bytes, {})
    if any(size < 0 for size in tensors.values()):
        return Shard(file_bytes, {})
    return Shard(sum(tensors.values()), tensors)
