"""GGUF (ggml-org/ggml, docs/gguf.md): key-value pairs, the list of tensors, then aligned data to the end of the file.

A vocabulary is an array of strings that can only be walked one by one. A large one is not: then the whole file counts,
which is a few MiB too many.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Final

from guard.footprint.values import FootprintError, Format, WeightFile

_HEAD: Final = struct.Struct("<4sIQQ")
_VERSIONS: Final = (2, 3)
_SCALAR_BYTES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_ALIGNMENT: Final = 32
_WALKED_LIMIT: Final = 4096
"""Strings, arrays, pairs and tensors that are walked, some 3 ms of them."""
_MOST_DIMENSIONS: Final = 8
_DEEPEST_ARRAY: Final = 4


class _TooLongError(Exception):
    """The header is not worth walking."""


class _Walk:
    """Reads on in the header, within its bounds."""

    def __init__(self, file: BinaryIO, path: str, file_bytes: int) -> None:
        self._file = file
        self._path = path
        self._file_bytes = file_bytes
        self._steps = 0

    def take(self, count: int) -> bytes:
        """Read so many bytes."""
        data = self._file.read(count)
        if len(data) != count:
            raise FootprintError(f"{self._path}: cut off within its header")
        return data

    def number(self, count: int) -> int:
        """Read an unsigned number of so many bytes."""
        return int.from_bytes(self.take(count), "little")

    def skip(self, count: int) -> None:
        """Skip bytes that must be there."""
        if self._file.tell() + count > self._file_bytes:
            raise FootprintError(f"{self._path}: cut off within its header")
        self._file.seek(count, 1)

    def step(self) -> None:
        """Count a string or an array, whether or not it is empty."""
        self._steps += 1
        if self._steps > _WALKED_LIMIT:
            raise _TooLongError

    def string(self) -> None:
        """Skip a string."""
        self.step()
        self.skip(self.number(8))

    def value(self, kind: int, depth: int = 0) -> None:
        """Skip a value of a type."""
        if kind in _SCALAR_BYTES:
            self.skip(_SCALAR_BYTES[kind])
        elif kind == _STRING:
            self.string()
        elif kind == _ARRAY and depth < _DEEPEST_ARRAY:
            self.step()
            element, count = self.number(4), self.number(8)
            if element in _SCALAR_BYTES:
                self.skip(_SCALAR_BYTES[element] * count)
                return
            if count > _WALKED_LIMIT:
                raise _TooLongError
            for _ in range(count):
                self.value(element, depth + 1)
        else:
            raise FootprintError(f"{self._path}: no GGUF file that is known: a value of type {kind}")


def read(file: BinaryIO, path: str, file_bytes: int) -> WeightFile:
    """Find where the header ends. Raises `FootprintError` for a file that is cut off or of another version."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise FootprintError(f"{path}: cut off within its header")
    _, version, tensors, pairs = _HEAD.unpack(head)
    if version not in _VERSIONS:
        raise FootprintError(f"{path}: GGUF version {version} is not known")
    try:
        start, needed = _walk(_Walk(file, path, file_bytes), file, tensors, pairs)
    except _TooLongError:
        start, needed = 0, 0
    if start + needed > file_bytes:
        raise FootprintError(f"{path}: cut off: its last tensor begins at {start + needed}, the file has {file_bytes}")
    return WeightFile(path=path, format=Format.GGUF, file_bytes=file_bytes, tensor_bytes=file_bytes - start)


def _walk(walk: _Walk, file: BinaryIO, tensors: int, pairs: int) -> tuple[int, int]:
    """Where the data begins, and where in it the last tensor does."""
    for _ in range(pairs):
        walk.string()
        walk.value(walk.number(4))
    last = 0
    for _ in range(tensors):
        walk.string()
        dimensions = walk.number(4)
        if dimensions > _MOST_DIMENSIONS:
            raise _TooLongError
        walk.skip(8 * dimensions + 4)
        last = max(last, walk.number(8))
    return -(-file.tell() // _ALIGNMENT) * _ALIGNMENT, last
