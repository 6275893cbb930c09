"""Zip files of torch: checkpoints, TorchScript, exported programs. Only the directory at the end is read.

PKWARE APPNOTE 4.3: end record, zip64 locator and end record, central directory. Nothing is unpickled. torch stores
entries uncompressed and larger than 4 GiB, so the zip64 extra field (4.5.3) counts. `zipfile` is not used: it makes an
object an entry, some 20 us each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final

from guard.footprint.values import FootprintError, Format, WeightFile

_END: Final = struct.Struct("<4s4HIIH")
_END64: Final = struct.Struct("<4sQ2HIIQQQQ")
_LOCATOR: Final = struct.Struct("<4sIQI")
_ENTRY: Final = struct.Struct("<4s6H3I5H2I")
_COMMENT_LIMIT: Final = 65535
_DIRECTORY_LIMIT: Final = 16 << 20
"""Some 150,000 entries."""
_PICKLE_LIMIT: Final = 1 << 20
_BIG: Final = 0xFFFFFFFF
_ZIP64_TAG: Final = 1
_LOCAL_HEAD: Final = 30
_STORAGES: Final = {b"DoubleStorage": "F64", b"FloatStorage": "F32", b"HalfStorage": "F16", b"BFloat16Storage": "BF16"}


def read(file: BinaryIO, path: str, file_bytes: int) -> WeightFile:
    """Sum the entries that hold tensors. Raises `FootprintError` for a file that is cut off or hostile."""
    weights = everything = 0
    kind, pickle = Format.TORCH_ZIP, None
    for name, size, offset in _entries(_directory(file, path, file_bytes), path):
        everything += size
        inner = name.partition(b"/")[2]
        if inner.startswith((b"data/", b"constants/", b"tensors/")) and not inner.endswith(b".json"):
            weights += size
        if inner == b"data.pkl" and offset < file_bytes:
            pickle = (offset, len(name), size)
        if inner.startswith(b"code/"):
            kind = Format.TORCHSCRIPT
        elif inner == b"archive_format" or inner.startswith(b"models/"):
            kind = Format.PT2
    if everything > file_bytes:
        raise FootprintError(
            f"{path}: its entries are compressed, or it is cut off: {everything} in {file_bytes} bytes"
        )
    told = b"" if pickle is None else _pickle(file, *pickle)
    return WeightFile(
        path=path,
        format=kind,
        file_bytes=file_bytes,
        tensor_bytes=weights or everything,
        by_dtype=_by_dtype(told, weights),
        on_device=b"cuda" in told,
    )


def _directory(file: BinaryIO, path: str, file_bytes: int) -> bytes:
    tail_bytes = min(file_bytes, _COMMENT_LIMIT + _END.size + _LOCATOR.size)
    file.seek(file_bytes - tail_bytes)
    tail = file.read(tail_bytes)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise FootprintError(f"{path}: cut off: a zip file without its directory")
    *_, size, offset, _comment = _END.unpack_from(tail, at)
    if _BIG in (size, offset) or tail[at - _LOCATOR.size : at - _LOCATOR.size + 4] == b"PK\x06\x07":
        size, offset = _large(file, path, tail[max(0, at - _LOCATOR.size) : at])
    if size > _DIRECTORY_LIMIT or offset + size > file_bytes:
        raise FootprintError(f"{path}: damaged: its directory claims {size} bytes at {offset}")
    file.seek(offset)
    return file.read(size)


def _large(file: BinaryIO, path: str, locator: bytes) -> tuple[int, int]:
    """Size and place of the directory from the zip64 end record."""
    if len(locator) == _LOCATOR.size:
        tag, _, at, _ = _LOCATOR.unpack(locator)
        if tag == b"PK\x06\x07" and at < 1 << 62:
            file.seek(at)
            record = file.read(_END64.size)
            if len(record) == _END64.size and record.startswith(b"PK\x06\x06"):
                *_, size, offset = _END64.unpack(record)
                return size, offset
    raise FootprintError(f"{path}: damaged: a large zip file without its zip64 record")


def _entries(directory: bytes, path: str) -> Iterator[tuple[bytes, int, int]]:
    """Name, size and offset of each entry."""
    at = 0
    while at + _ENTRY.size <= len(directory):
        fields = _ENTRY.unpack_from(directory, at)
        if fields[0] != b"PK\x01\x02":
            break
        size, name_bytes, extra_bytes, comment_bytes, offset = fields[9], fields[10], fields[11], fields[12], fields[16]
        start = at + _ENTRY.size
        name = directory[start : start + name_bytes]
        if _BIG in (size, fields[8], offset):
            extra = directory[start + name_bytes : start + name_bytes + extra_bytes]
            size, offset = _zip64(extra, size, fields[8], offset)
        yield name, size, offset
        at = start + name_bytes + extra_bytes + comment_bytes
    if at != len(directory):
        raise FootprintError(f"{path}: damaged: its directory ends early")


def _zip64(extra: bytes, size: int, stored: int, offset: int) -> tuple[int, int]:
    """Put the 64-bit values in place of those that did not fit: size, stored size, offset, in this order."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == _ZIP64_TAG:
            values = iter(struct.unpack_from(f"<{length // 8}Q", extra[at + 4 : at + 4 + length].ljust(length, b"\0")))
            size = next(values, size) if size == _BIG else size
            if stored == _BIG:
                next(values, None)
            offset = next(values, offset) if offset == _BIG else offset
            break
        at += 4 + length
    return size, offset


def _pickle(file: BinaryIO, offset: int, name_bytes: int, size: int) -> bytes:
    """Read the pickle to search it for words. It is not unpickled."""
    file.seek(offset)
    return file.read(min(size + _LOCAL_HEAD + name_bytes + 128, _PICKLE_LIMIT))


def _by_dtype(pickle: bytes, weights: int) -> dict[str, int]:
    """Bytes by element type if all tensors are of one type of floating point; else it is not told."""
    types = [name for word, name in _STORAGES.items() if word in pickle]
    alone = pickle.count(b"Storage\n") == 1  # a pickle names each class once
    return {types[0]: weights} if len(types) == 1 and alone else {}
