"""What headers say, of files written byte by byte."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.footprint import FootprintError, Format, footprint
from tests.guard.preflight import checkpoint_files as write

MIB = 1 << 20


def test_safetensors(tmp_path: Path) -> None:
    """Bytes of all tensors, by element type."""
    path = write.safetensors(tmp_path / "m.safetensors", {"a": ("F32", 400), "b": ("BF16", 100), "c": ("I64", 8)})
    found = footprint(path)
    assert (found.tensor_bytes, found.format) == (508, Format.SAFETENSORS)
    assert found.files[0].by_dtype == {"F32": 400, "BF16": 100, "I64": 8}
    assert found.bytes_as("F32") == 400 + 200 + 8
    assert found.bytes_as("F16") == 200 + 100 + 8


@pytest.mark.parametrize(
    ("code", "expected"), [(False, Format.TORCH_ZIP), (True, Format.TORCHSCRIPT)], ids=["checkpoint", "script"]
)
def test_torch_zip(code: bool, expected: Format, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    """Storages of a zip file, without its pickle; TorchScript is told by its code."""
    found = footprint(write.torch_zip(tmp_path / "m.pt", [1000, 24], pickle=bytes(500), code=code))
    assert (1024, expected) == (found.tensor_bytes, found.format)


@pytest.mark.parametrize(
    ("pickle", "dtype", "on_device"),
    [
        (b"ctorch\nBFloat16Storage\nX\x03\0\0\0cpu", "BF16", False),
        (b"ctorch\nFloatStorage\nX\x06\0\0\0cuda:0", "F32", True),
        (b"ctorch\nFloatStorage\nctorch\nLongStorage\n", None, False),
        (b"", None, False),
    ],
    ids=["bfloat16", "saved-from-a-gpu", "mixed", "nothing-told"],
)
def test_what_a_pickle_tells(pickle: bytes, dtype: str | None, on_device: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """The element type if there is one for all, and whether tensors go back to a GPU; nothing is unpickled."""
    (file,) = footprint(write.torch_zip(tmp_path / "m.pt", [64], pickle=pickle)).files
    assert ({} if dtype is None else {dtype: 64}, on_device) == (file.by_dtype, file.on_device)


def test_zip_larger_than_4_gib(tmp_path: Path) -> None:
    """Sizes and places beyond 32 bits come from the zip64 fields."""
    size = 5 << 30
    assert size == footprint(write.large_zip(tmp_path / "large.pt", size)).tensor_bytes


def test_gguf(tmp_path: Path) -> None:
    """The data after the header; with a vocabulary that is too long to walk, the whole file."""
    small = footprint(write.gguf(tmp_path / "small.gguf", [("a", 64), ("b", 128)]))
    assert (small.tensor_bytes, small.format) == (192, Format.GGUF)
    large = write.gguf(tmp_path / "large.gguf", [("a", 64)], words=50_000)
    assert large.stat().st_size == footprint(large).tensor_bytes


def test_onnx_with_files_beside_it(tmp_path: Path) -> None:
    """The model and every file that it names, each once."""
    path = write.onnx(tmp_path / "m.onnx", 3000, {"one.data": 500, "two.data": 700})
    assert path.stat().st_size + 1200 == footprint(path).tensor_bytes


def test_pickle_and_ctranslate2(tmp_path: Path) -> None:
    """Formats without sizes in their header count with the file."""
    (tmp_path / "old.bin").write_bytes(write.LEGACY + bytes(100))
    assert (
        footprint(tmp_path / "old.bin").tensor_bytes,
        footprint(tmp_path / "old.bin").format,
    ) == (115, Format.PICKLE)
    found = footprint(write.ctranslate2(tmp_path / "model.bin", 100))
    assert (found.tensor_bytes, found.format) == (122, Format.CTRANSLATE2)


def _cut(path: Path, keep: int) -> Path:
    path.write_bytes(path.read_bytes()[:keep])
    return path


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda d: d / "nowhere", "No such file"),
        (lambda d: d, "a folder without weights"),
        (lambda d: write.safetensors(d / "m.safetensors", {"a": ("F32", 400)}, missing=1), "cut off"),
        (lambda d: _cut(write.safetensors(d / "m.safetensors", {"a": ("F32", 400)}), 20), "cut off"),
        (lambda d: _cut(write.torch_zip(d / "m.pt", [1000]), 600), "without its directory"),
        (lambda d: write.gguf(d / "m.gguf", [("a", 64), ("b", 64)], missing=96), "cut off"),
        (lambda d: _cut(write.gguf(d / "m.gguf", [("a", 64)]), 60), "cut off"),
        (lambda d: _cut(write.onnx(d / "m.onnx", 3000), 100), "cut off"),
        (lambda d: write.onnx(d / "m.onnx", 10, {"../secret": 5}), "outside its folder"),
        (lambda d: _cut(write.ctranslate2(d / "model.txt", 0), 4), "not a weight file"),
        (lambda d: _cut(write.ctranslate2(d / "model.bin", 0), 0), "the file is empty"),
        (lambda _: Path("/dev/null"), "not a file"),
    ],
    ids=[
        *("missing", "empty-folder", "safetensors-cut-in-data", "safetensors-cut-in-header", "zip-cut"),
        *("gguf-cut-in-data", "gguf-cut-in-header", "onnx-cut", "onnx-leads-out", "unknown", "empty", "device"),
    ],
)
def test_bad_input(make: object, says: str, tmp_path: Path) -> None:
    """Each kind of bad input is one line that names the path and what is wrong."""
    path = make(tmp_path)  # type: ignore[operator]
    with pytest.raises(FootprintError, match=says) as raised:
        footprint(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["m.safetensors", "model.safetensors.index.json"])
@pytest.mark.parametrize("within", [True, False])
def test_fifo_in_place_of_a_file(name: str, within: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of pytest
    """A pipe does not hold the caller, by its own name and in a folder."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(FootprintError, match="not a file"):
        footprint(tmp_path if within else tmp_path / name)


def _header(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text + bytes(8)


HOSTILE = {
    "header of 2^63 bytes": (1 << 63).to_bytes(8, "little") + b"{}",
    "deep": (50_000).to_bytes(8, "little") + b"[" * 50_000,
    "long number": (20_020).to_bytes(8, "little") + b'{"a":{"x":' + b"9" * 20_000 + b"}        }",
    "gguf with 2^60 pairs": struct.pack("<4sIQQ", b"GGUF", 3, 1, 1 << 60),
    "zip that claims a large directory": b"PK\3\4" + bytes(60) + b"PK\5\6" + b"\xff" * 18,
    "a tensor that never ends": _header(b'{"a":{"dtype":"F32","data_offsets":[0,1e999]}}'),
    "tensors one over the other": _header(
        b'{"a":{"dtype":"F32","data_offsets":[0,8]},"b":{"dtype":"F32","data_offsets":[4,8]}}'
    ),
    "zip64 that leads out": b"PK\3\4" + bytes(60) + b"PK\6\7" + b"\xff" * 16 + b"PK\5\6" + b"\xff" * 18,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers(name: str, tmp_path: Path) -> None:
    """A header that claims the impossible costs neither memory nor time."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(HOSTILE[name])
    started = time.process_time()
    with pytest.raises(FootprintError):
        footprint(path)
    assert time.process_time() - started < 0.2


def test_gguf_of_empty_arrays(tmp_path: Path) -> None:
    """A header that holds nothing, millions of times, is not walked to its end."""
    inner = struct.pack("<IQ", 9, 4096) + struct.pack("<IQ", 4, 0) * 4096
    pair = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 9, 400) + inner * 400
    path = tmp_path / "m.gguf"
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + pair)
    started = time.process_time()
    assert footprint(path).tensor_bytes == path.stat().st_size
    assert time.process_time() - started < 0.2


def test_zip64_pickle_out_of_this_world(tmp_path: Path) -> None:
    """A pickle that is said to lie past what a file can have is not looked into; the rest counts."""
    name = b"archive/data.pkl"
    extra = struct.pack("<HHQQQ", 1, 24, 10, 10, (1 << 64) - 1)
    fields = (45, 45, 0, 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(name), len(extra), 0, 0, 0, 0, 0xFFFFFFFF)
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", *fields) + name + extra
    end = struct.pack("<4s4HIIH", b"PK\5\6", 0, 0, 1, 1, len(entry), 64, 0)
    path = tmp_path / "m.pt"
    path.write_bytes(b"PK\3\4" + bytes(60) + entry + end)
    assert footprint(path).tensor_bytes == 10


def test_path_in_bytes(tmp_path: Path) -> None:
    """A path may be bytes, as for `open`, also such as are no text."""
    path = write.safetensors(tmp_path / os.fsdecode(b"\xff.safetensors"), {"a": ("F32", 40)})
    assert footprint(os.fsencode(path)).path == str(path)


@settings(max_examples=300)
@given(
    head=st.sampled_from([b"", b"PK\3\4", b"GGUF\3\0\0\0", b"\x08\x08\x3a", b"\x20\0\0\0\0\0\0\0{", write.LEGACY[:10]]),
    rest=st.binary(max_size=400),
    suffix=st.sampled_from([".safetensors", ".pt", ".gguf", ".onnx", ".bin"]),
)
def test_any_bytes(head: bytes, rest: bytes, suffix: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever a file holds, it is a footprint no larger than what is there, or a `FootprintError`."""
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    path.write_bytes(head + rest)
    try:
        found = footprint(path)
    except FootprintError:
        return
    assert 0 <= found.tensor_bytes <= len(head + rest)


@settings(max_examples=150)
@given(at=st.integers(0, 10_000), value=st.integers(0, 255), kind=st.integers(0, 3))
def test_any_flipped_byte(at: int, value: int, kind: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """One wrong byte in a good file gives a footprint or a `FootprintError`."""
    folder = tmp_path_factory.getbasetemp()
    path = (
        write.safetensors(folder / "f.safetensors", {"a": ("F32", 40)}),
        write.torch_zip(folder / "f.pt", [100, 20], pickle=b"ctorch\nFloatStorage\n"),
        write.gguf(folder / "f.gguf", [("a", 64)]),
        write.onnx(folder / "f.onnx", 30, {"f.data": 5}),
    )[kind]
    data = bytearray(path.read_bytes())
    data[at % len(data)] = value
    path.write_bytes(data)
    with contextlib.suppress(FootprintError):
        assert footprint(path).tensor_bytes >= 0
