"""Which files of a folder are its weights: the first kind that is there, in the order in which libraries look."""

from __future__ import annotations

import json
import os
import posixpath
from pathlib import Path
from typing import Final

from guard.footprint.one_file import open_file, read_file
from guard.footprint.values import FootprintError, WeightFile

_INDEX: Final = ".index.json"
_INDEX_LIMIT: Final = 8 << 20
_KINDS: Final = (
    ".safetensors" + _INDEX,
    ".safetensors",
    ".bin" + _INDEX,
    ".bin",
    ".gguf",
    ".onnx",
    ".pt2",
    ".pt",
    ".pth",
    ".ckpt",
)
_WHOLE: Final = ("model.safetensors", "pytorch_model.bin", "diffusion_pytorch_model.safetensors")
"""Where a folder has one of these, other files of the same kind (variants, adapters) are not loaded with it."""
_NO_WEIGHTS: Final = ("optimizer", "scheduler", "training_args", "rng_state", "tokenizer")
_HEADERS_READ: Final = 32
"""Of so many shards the headers are read; of the others the index or the file size tells enough."""
_PIPELINE: Final = "model_index.json"


def read_folder(path: str) -> tuple[WeightFile, ...]:
    """Read the weights of a folder, and of its components if it is a pipeline of diffusers."""
    names = _names(path)
    if _PIPELINE in names:
        parts = [part for name in names if os.path.isdir(part := posixpath.join(path, name))]  # noqa: PTH112 - never raises
        files = tuple(file for part in parts for file in _weights(part, _names(part)))
    else:
        files = _weights(path, names)
    if not files:
        raise FootprintError(f"{path}: a folder without weights")
    return files


def read_index(path: str) -> tuple[WeightFile, ...]:
    """Read the shards that an index names, each once."""
    with open_file(path) as file:
        try:
            text = file.read(_INDEX_LIMIT + 1)
        except OSError as error:
            raise FootprintError(f"{path}: {error.strerror}") from error
    if len(text) > _INDEX_LIMIT:
        raise FootprintError(f"{path}: an index of more than {_INDEX_LIMIT} bytes")
    try:
        weight_map = json.loads(text)["weight_map"]
        names = sorted({str(name) for name in weight_map.values()})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FootprintError(f"{path}: an index without a weight_map") from error
    if any(name != posixpath.basename(name) or "\0" in name for name in names):
        raise FootprintError(f"{path}: names shards outside its folder")
    return _shards(posixpath.dirname(path), names)


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - names, not paths
    except OSError as error:
        raise FootprintError(f"{path}: {error.strerror}") from error


def _weights(path: str, names: list[str]) -> tuple[WeightFile, ...]:
    for kind in _KINDS:
        found = [name for name in names if name.endswith(kind) and not name.startswith(_NO_WEIGHTS)]
        if not found:
            continue
        if kind.endswith(_INDEX):
            return read_index(posixpath.join(path, _plainest(found)))
        whole = [name for name in found if name in _WHOLE]
        return _shards(path, whole[:1] or found)
    return ()


def _plainest(names: list[str]) -> str:
    """The index without a variant in its name."""
    return min(names, key=len)


def _shards(folder: str, names: list[str]) -> tuple[WeightFile, ...]:
    """Read shards; past the first ones only their sizes, as all are of one kind."""
    files = [read_file(posixpath.join(folder, name)) for name in names[:_HEADERS_READ]]
    for name in names[_HEADERS_READ:]:
        path = posixpath.join(folder, name)
        try:
            size = Path(path).stat().st_size
        except OSError as error:
            raise FootprintError(f"{path}: {error.strerror}") from error
        files.append(WeightFile(path=path, format=files[0].format, file_bytes=size, tensor_bytes=size))
    return tuple(files)
