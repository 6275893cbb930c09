"""Which format a file has, by its first bytes, and what its headers say. The only place here that opens a file."""

from __future__ import annotations

import os
import stat
import struct
from typing import BinaryIO, Final

from guard.footprint import gguf, onnx, safetensors, torch_zip
from guard.footprint.values import FootprintError, Format, WeightFile

_ZIP: Final = b"PK\x03\x04"
_GGUF: Final = b"GGUF"
_LEGACY: Final = bytes.fromhex("80028a0a6cfc9c46f920")
"""torch's own magic number as protocol 2 pickles it (torch/serialization.py, MAGIC_NUMBER)."""
_PICKLE_SUFFIXES: Final = (".pt", ".pth", ".ckpt", ".bin", ".pkl")
_FIRST_BYTES: Final = 64
_BUFFER_BYTES: Final = 1024
"""Headers are read here and there; a larger buffer would be filled for nothing."""
_CTRANSLATE2_NEWEST: Final = 64
_SPEC: Final = b"Spec\0"


def read_file(path: str) -> WeightFile:
    """Read the headers of a file. Raises `FootprintError`, with one line that says what is wrong."""
    with open_file(path) as file:
        try:
            return _read(file, path, os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise FootprintError(f"{path}: {error.strerror}") from error


def open_file(path: str) -> BinaryIO:
    """Open a regular file. Raises `FootprintError` for anything else: a FIFO in its place must not hold the caller."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise FootprintError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FootprintError(f"{path}: not a file")
    return os.fdopen(descriptor, "rb", buffering=_BUFFER_BYTES)


def _read(file: BinaryIO, path: str, size: int) -> WeightFile:
    first = file.read(_FIRST_BYTES)
    file.seek(0)
    if not first:
        raise FootprintError(f"{path}: the file is empty")
    if first.startswith(_ZIP):
        return torch_zip.read(file, path, size)
    if first.startswith(_GGUF):
        return gguf.read(file, path, size)
    if first.startswith(_LEGACY) or (first[:1] == b"\x80" and path.endswith(_PICKLE_SUFFIXES)):
        return WeightFile(path=path, format=Format.PICKLE, file_bytes=size, tensor_bytes=size)
    if path.endswith(".onnx"):
        return onnx.read(file, path, size)
    if _is_ctranslate2(first):
        return WeightFile(path=path, format=Format.CTRANSLATE2, file_bytes=size, tensor_bytes=size)
    if path.endswith(".safetensors") or first[8:9] == b"{":
        return safetensors.read(file, path, size)
    raise FootprintError(f"{path}: not a weight file of a format that is known")


def _is_ctranslate2(first: bytes) -> bool:
    """A version and the length and name of the model's class (python/ctranslate2/specs/model_spec.py)."""
    if len(first) < _FIRST_BYTES:
        return False
    version, length = struct.unpack_from("<IH", first)
    return 0 < version <= _CTRANSLATE2_NEWEST and first[6 : 6 + length].endswith(_SPEC)
