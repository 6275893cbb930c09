"""safetensors (huggingface/safetensors, README "Format"): a u64 length, that much JSON, then the tensors' bytes."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, BinaryIO, Final

from guard.footprint.values import FootprintError, Format, WeightFile

_LENGTH_BYTES: Final = 8
_HEADER_LIMIT: Final = 8 << 20
"""Some 60,000 tensors. The library itself takes 100 MB; such a file counts with its size."""


def read(file: BinaryIO, path: str, file_bytes: int) -> WeightFile:
    """Read the header of an open file. Raises `FootprintError` for one that is cut off or not of this format."""
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if _LENGTH_BYTES + length > file_bytes:
        raise FootprintError(
            f"{path}: cut off or no safetensors file: its header has {length} bytes, the file {file_bytes}"
        )
    if length > _HEADER_LIMIT:
        return WeightFile(
            path=path,
            format=Format.SAFETENSORS,
            file_bytes=file_bytes,
            tensor_bytes=file_bytes - length - _LENGTH_BYTES,
        )
    by_dtype, end = _sizes(file.read(length), path)
    there = file_bytes - _LENGTH_BYTES - length
    if end > there:
        raise FootprintError(f"{path}: cut off: its header tells of {end} bytes of tensors, {there} are there")
    return WeightFile(
        path=path,
        format=Format.SAFETENSORS,
        file_bytes=file_bytes,
        tensor_bytes=sum(by_dtype.values()),
        by_dtype=dict(by_dtype),
    )


def _sizes(header: bytes, path: str) -> tuple[Counter[str], int]:
    """Bytes by element type, and where the last tensor ends."""
    by_dtype: Counter[str] = Counter()
    last, wrong = 0, False
    try:
        entries: dict[str, Any] = json.loads(header)
        for name, entry in entries.items():
            if name == "__metadata__":
                continue
            begin, end = (int(offset) for offset in entry["data_offsets"])
            wrong = wrong or not 0 <= begin <= end
            by_dtype[str(entry["dtype"])] += end - begin
            last = max(last, end)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise FootprintError(f"{path}: no safetensors file: its header cannot be read") from error
    if wrong:
        raise FootprintError(f"{path}: no safetensors file: a tensor ends before it begins")
    if sum(by_dtype.values()) > last:
        raise FootprintError(f"{path}: no safetensors file: its tensors overlap")
    return by_dtype, last
