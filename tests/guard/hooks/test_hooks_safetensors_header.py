"""Headers of safetensors files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.hooks.safetensors_header import Shard, parse, read_shard


def _file(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


HEADER = json.dumps(
    {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F16", "shape": [2], "data_offsets": [8, 12]},
    }
).encode()


def test_sizes_by_name(tmp_path: Path) -> None:
    """Each tensor's size comes from its offsets; metadata is no tensor."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(_file(HEADER, bytes(12)))
    assert Shard(12, {"a": 8, "b": 4}) == read_shard(str(path))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\1",
        _file(b"", length=1 << 62),
        _file(HEADER, length=len(HEADER) + 99),
        _file(b"not json"),
        _file(b"[1, 2]"),
        _file(b'{"a": 1}'),
        _file(b'{"a": {"data_offsets": [8, 0]}}'),
        _file(b'{"a": {"data_offsets": [1e999, 0]}}'),
        _file(b"[" * 100000),
    ],
)
def test_file_in_another_shape(content: bytes, tmp_path: Path) -> None:
    """A file that is cut or no safetensors file gives its size and no names, and reads no more than it has."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    assert Shard(len(content), {}) == read_shard(str(path))


def test_file_that_is_not_there(tmp_path: Path) -> None:
    """Without a file nothing is known, and nothing is raised: the host's own open will say it."""
    assert Shard(None, {}) == read_shard(str(tmp_path / "nowhere"))


@given(st.binary(max_size=200), st.integers(0, 1 << 40))
def test_parse_is_total(header: bytes, size: int) -> None:
    """No bytes make the parser raise, and the total is never negative."""
    total = parse(header, size).total_bytes
    assert total is not None
    assert total >= 0
