"""ONNX (onnx/onnx, onnx.proto): one protobuf message; large models keep tensors in files beside it.

Only what leads to the names of those files is walked: ModelProto.graph = 7, GraphProto.initializer = 5,
TensorProto.external_data = 13 with its entries key = 1, value = 2. Everything else is skipped by its length.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from guard.footprint.values import FootprintError, Format, WeightFile

_GRAPH, _INITIALIZER, _EXTERNAL, _KEY, _VALUE = 7, 5, 13, 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS: Final = {_FIXED64: 8, _FIXED32: 4}
_FIELDS_LIMIT: Final = 5000
"""Some 10 ms. A graph with more counts with the files that were named so far, and says no less than its own size."""
_TEXT_LIMIT: Final = 4096
_VARINT_LIMIT: Final = 10


class _Walk:
    """Walks the fields of a message in a file, within its bounds."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self.file = file
        self._path = path
        self._fields = 0

    def fields(self, wanted: tuple[int, ...], start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Give number, start and end of each wanted field that has a length."""
        at = start
        while at < end and self._fields < _FIELDS_LIMIT:
            self._fields += 1
            self.file.seek(at)
            tag = self._varint()
            kind, number = tag & 7, tag >> 3
            if kind == _VARINT:
                self._varint()
                at = self.file.tell()
            elif kind == _BYTES:
                length = self._varint()
                begin = self.file.tell()
                at = begin + length
                if at > end:
                    raise FootprintError(f"{self._path}: cut off, or no ONNX model")
                if number in wanted:
                    yield number, begin, at
            elif kind in _WIDTHS:
                at = self.file.tell() + _WIDTHS[kind]
            else:
                raise FootprintError(f"{self._path}: no ONNX model")

    def text(self, start: int, end: int) -> str:
        """Read a short text."""
        self.file.seek(start)
        return self.file.read(min(end - start, _TEXT_LIMIT)).decode("utf-8", "replace")

    def _varint(self) -> int:
        value = 0
        for place in range(_VARINT_LIMIT):
            byte = self.file.read(1)
            if not byte:
                break
            value |= (byte[0] & 0x7F) << 7 * place
            if byte[0] < 0x80:  # noqa: PLR2004 - the continuation bit
                return value
        raise FootprintError(f"{self._path}: cut off, or no ONNX model")


def read(file: BinaryIO, path: str, file_bytes: int) -> WeightFile:
    """Add the files that the model names to its own size. Raises `FootprintError` for one that is missing or cut."""
    walk = _Walk(file, path)
    names: set[str] = set()
    graphs = list(walk.fields((_GRAPH,), 0, file_bytes))
    if not graphs:
        raise FootprintError(f"{path}: no ONNX model: there is no graph in it")
    for _, start, end in graphs:
        for _, first, last in walk.fields((_INITIALIZER,), start, end):
            names.update(_locations(walk, first, last))
    beside = sum(_size(path, name) for name in names)
    return WeightFile(path=path, format=Format.ONNX, file_bytes=file_bytes + beside, tensor_bytes=file_bytes + beside)


def _locations(walk: _Walk, start: int, end: int) -> Iterator[str]:
    for _, first, last in walk.fields((_EXTERNAL,), start, end):
        parts = {number: walk.text(*place) for number, *place in walk.fields((_KEY, _VALUE), first, last)}
        if parts.get(_KEY) == "location":
            yield parts.get(_VALUE, "")


def _size(path: str, name: str) -> int:
    """Size of a file beside the model. Names that lead out of the folder are refused, as the library does."""
    plain = posixpath.normpath(name)
    if plain.startswith(("/", "..")) or "\0" in plain:
        raise FootprintError(f"{path}: names a file outside its folder: {name[:200]}")
    beside = posixpath.join(posixpath.dirname(path), plain)
    try:
        return Path(beside).stat().st_size
    except OSError as error:
        raise FootprintError(f"{path}: the file {name[:200]} that it names: {error.strerror}") from error
