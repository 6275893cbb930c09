"""Weight files written byte by byte after the descriptions of their formats."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LEGACY = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")


def safetensors(path: Path, tensors: Mapping[str, tuple[str, int]], *, missing: int = 0) -> Path:
    """Write tensors given as name: (element type, bytes); leave out the last `missing` bytes."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, size) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": [size], "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(at - missing))
    return path


def torch_zip(path: Path, storages: list[int], *, pickle: bytes = b"", code: bool = False) -> Path:
    """Write what `torch.save` writes, with storages of these sizes."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle)
        for number, size in enumerate(storages):
            file.writestr(f"archive/data/{number}", bytes(size))
        file.writestr("archive/version", "3\n")
        if code:
            file.writestr("archive/code/__torch__.py", "")
    return path


def large_zip(path: Path, size: int) -> Path:
    """Write a sparse zip of one entry larger than 4 GiB: zip64 as in PKWARE APPNOTE 4.3.14 and 4.5.3."""
    name = b"archive/data/0"
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(name), 20)
    local += name + struct.pack("<HHQQ", 1, 16, size, size)
    at = len(local) + size
    big = 0xFFFFFFFF
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 45, 45, 0, 0, 0, 0, 0, big, big, len(name), 20, 0, 0, 0, 0, 0)
    directory = entry + name + struct.pack("<HHQQ", 1, 16, size, size)
    end64 = struct.pack("<4sQ2HIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(directory), at)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at + len(directory), 1)
    end = struct.pack("<4s4HIIH", b"PK\5\6", 0, 0, 1, 1, len(directory), big, 0)
    with path.open("wb") as file:
        file.write(local)
        file.seek(at)
        file.write(directory + end64 + locator + end)
    return path


def gguf(path: Path, tensors: list[tuple[str, int]], *, words: int = 3, missing: int = 0) -> Path:
    """Write float32 tensors given as (name, bytes), and a vocabulary of so many words."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    pairs = text("general.alignment") + struct.pack("<II", 4, 32)
    pairs += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, words) + text("ab") * words
    infos, at = b"", 0
    for name, size in tensors:
        infos += text(name) + struct.pack("<IQIQ", 1, size // 4, 0, at)
        at += -(-size // 32) * 32
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), 2) + pairs + infos
    start = -(-len(head) // 32) * 32
    path.write_bytes(head.ljust(start, b"\0") + bytes(at - missing))
    return path


def onnx(path: Path, inside: int, outside: Mapping[str, int] | None = None) -> Path:
    """Write a graph with one tensor of `inside` bytes and one in each named file beside it."""
    tensors = _field(5, _field(8, b"w") + _field(9, bytes(inside)))
    for name, size in (outside or {}).items():
        entry = _field(1, b"location") + _field(2, name.encode())
        tensors += _field(5, _field(8, name.encode()) + _field(13, entry))
        if not name.startswith(("/", "..")):
            (path.parent / name).write_bytes(bytes(size))
    path.write_bytes(b"\x08\x08" + _field(7, tensors))
    return path


def ctranslate2(path: Path, size: int) -> Path:
    """Write the beginning of a model of CTranslate2, and zeros."""
    name = b"TransformerSpec\0"
    path.write_bytes(struct.pack("<IH", 6, len(name)) + name + bytes(size))
    return path


def _field(number: int, value: bytes) -> bytes:
    """Write a protobuf field with a length."""
    length, text = len(value), b""
    while length > 0x7F:
        text += bytes([length & 0x7F | 0x80])
        length >>= 7
    return bytes([number << 3 | 2]) + text + bytes([length]) + value
