"""What each way of loading a checkpoint costs. Measured: docs/preflight.md; `python -m bench.preflight` measures again.

Anonymous memory is what a limit must have room for: reclaim cannot take it. Mapped file pages count against the limit
too, but are dropped as soon as somebody needs the room. Hence the advice: map, and give the mapped tensors to the model
(`assign=True`) instead of copying them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from guard.fit.units import MIB
from guard.footprint.values import Footprint, Format

_ZIP: Final = frozenset({Format.TORCH_ZIP})
_TORCH: Final = frozenset({Format.TORCH_ZIP, Format.PICKLE})
_SAFETENSORS: Final = frozenset({Format.SAFETENSORS})
_HUB: Final = _SAFETENSORS | _TORCH


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPath:
    """One way of loading. Multiples of bytes: as stored, as wanted (`dtype`), as wanted if that is another type.

    `streams`: with a device as target, tensors pass through the host one by one, so nothing of this stays there.
    """

    name: str
    formats: frozenset[Format]
    library: str  # what must be imported for it
    stored: float = 0.0
    wanted: float = 0.0
    converted: float = 0.0
    mapped: float = 0.0
    streams: bool = False
    cheaper: tuple[str, ...] = ()  # other paths for the same files, best first
    note: str = ""  # what the multiples do not say


_MAP_AND_ASSIGN: Final = "torch.load(mmap=True) + assign"
_LOAD_FILE: Final = "safetensors.torch.load_file"
_FLAX: Final = "each tensor is a numpy array first and lives on until jax has copied it: up to this much, often less"

_ALL: Final = (
    LoadPath(
        name="torch.load", formats=_TORCH, library="torch", stored=1, converted=1,
        cheaper=(_MAP_AND_ASSIGN, "torch.load(mmap=True)"),
    ),
    LoadPath(name="torch.load(mmap=True)", formats=_ZIP, library="torch", converted=1, mapped=1),
    LoadPath(
        name="torch.load(BytesIO)", formats=_TORCH, library="torch", stored=2, converted=1,
        cheaper=(_MAP_AND_ASSIGN, "torch.load(mmap=True)", "torch.load"),
    ),
    LoadPath(
        name="torch.load + load_state_dict", formats=_TORCH, library="torch", stored=1, wanted=1,
        cheaper=(_MAP_AND_ASSIGN, "torch.load(mmap=True) + load_state_dict", "torch.load + assign"),
    ),
    LoadPath(
        name="torch.load(mmap=True) + load_state_dict", formats=_ZIP, library="torch", wanted=1, mapped=1,
        cheaper=(_MAP_AND_ASSIGN,),
    ),
    LoadPath(
        name="torch.load + assign", formats=_TORCH, library="torch", stored=1, converted=1, cheaper=(_MAP_AND_ASSIGN,)
    ),
    LoadPath(name=_MAP_AND_ASSIGN, formats=_ZIP, library="torch", converted=1, mapped=1),
    LoadPath(
        name="torch.jit.load", formats=frozenset({Format.TORCHSCRIPT}), library="torch", stored=1, converted=1
    ),
    LoadPath(
        name="torch.export.load", formats=frozenset({Format.PT2}), library="torch", stored=1, converted=1
    ),
    LoadPath(name=_LOAD_FILE, formats=_SAFETENSORS, library="torch", converted=1, mapped=1, streams=True),
    LoadPath(
        name="safetensors.torch.load_file(backend='pread')", formats=_SAFETENSORS, library="torch", stored=1,
        converted=1, streams=True, cheaper=(_LOAD_FILE,),
    ),
    LoadPath(
        name="safetensors.torch.load_file + load_state_dict", formats=_SAFETENSORS, library="torch", wanted=1, mapped=1,
        cheaper=("safetensors.torch.load_file + assign",),
    ),
    LoadPath(
        name="safetensors.torch.load_file + assign", formats=_SAFETENSORS, library="torch", converted=1, mapped=1
    ),
    LoadPath(
        name="safetensors.torch.load_model", formats=_SAFETENSORS, library="torch", wanted=1, mapped=1,
        cheaper=("safetensors.torch.load_file + assign",),
    ),
    LoadPath(
        name="safetensors.torch.load", formats=_SAFETENSORS, library="torch", stored=2, converted=1,
        cheaper=(_LOAD_FILE,),
    ),
    LoadPath(name="safetensors.safe_open", formats=_SAFETENSORS, library="torch", converted=1, mapped=1, streams=True),
    LoadPath(
        name="safetensors.safe_open + clone", formats=_SAFETENSORS, library="torch", wanted=1, mapped=1,
        cheaper=("safetensors.safe_open",),
    ),
    LoadPath(
        name="safetensors.numpy.load_file", formats=_SAFETENSORS, library="numpy", stored=1, converted=1, mapped=1
    ),
    LoadPath(
        name="safetensors.numpy.load", formats=_SAFETENSORS, library="numpy", stored=2, converted=1,
        cheaper=("safetensors.numpy.load_file",),
    ),
    LoadPath(
        name="safetensors.safe_open(framework='np')", formats=_SAFETENSORS, library="numpy", stored=1, converted=1,
        mapped=1,
    ),
    LoadPath(
        name="safetensors.flax.load_file", formats=_SAFETENSORS, library="jax", stored=2, converted=1, mapped=1,
        note=_FLAX,
    ),
    LoadPath(
        name="safetensors.flax.load", formats=_SAFETENSORS, library="jax", stored=3.5, converted=1,
        cheaper=("safetensors.flax.load_file",), note=_FLAX,
    ),
    LoadPath(
        name="safetensors.safe_open(framework='flax')", formats=_SAFETENSORS, library="jax", stored=2, converted=1,
        mapped=1, note=_FLAX,
    ),
    LoadPath(
        name="transformers.from_pretrained", formats=_HUB, library="transformers", converted=1, mapped=1, streams=True
    ),
    LoadPath(
        name="accelerate.load_checkpoint_and_dispatch", formats=_HUB, library="accelerate", converted=1, mapped=1,
        streams=True, cheaper=("transformers.from_pretrained",),
    ),
    LoadPath(
        name="diffusers.from_pretrained", formats=_HUB, library="diffusers", converted=1, mapped=1, streams=True
    ),
    LoadPath(
        name="onnxruntime.InferenceSession", formats=frozenset({Format.ONNX}), library="onnxruntime", stored=1.1
    ),
    LoadPath(
        name="onnxruntime.InferenceSession(bytes)", formats=frozenset({Format.ONNX}), library="onnxruntime", stored=3,
        cheaper=("onnxruntime.InferenceSession",),
    ),
    LoadPath(name="ctranslate2", formats=frozenset({Format.CTRANSLATE2}), library="ctranslate2", stored=1),
    LoadPath(name="gguf.GGUFReader", formats=frozenset({Format.GGUF}), library="gguf", mapped=1),
    LoadPath(
        name="llama_cpp.Llama", formats=frozenset({Format.GGUF}), library="llama_cpp", stored=1, mapped=1, streams=True,
        note="quantised tensors are copied into another order on most CPUs (counted here); others stay mapped",
    ),
)  # fmt: skip

PATHS: Final[Mapping[str, LoadPath]] = MappingProxyType({path.name: path for path in _ALL})

IMPORT_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "torch": 155 * MIB,
        "numpy": 12 * MIB,
        "jax": 80 * MIB,
        "transformers": 270 * MIB,
        "accelerate": 160 * MIB,
        "diffusers": 295 * MIB,
        "onnxruntime": 25 * MIB,
        "ctranslate2": 20 * MIB,
        "gguf": 20 * MIB,
        "llama_cpp": 20 * MIB,
    }
)
"""What importing the library takes in anonymous memory, where it is not imported yet. Measured on the CPU build."""

BOOKKEEPING_BYTES: Final = 8 * MIB
"""Python objects, allocator rounding and the library's own tables; measured at 0 to 4 MiB."""

_DEFAULTS: Final[Mapping[Format, str]] = MappingProxyType(
    {
        Format.SAFETENSORS: _LOAD_FILE,
        Format.TORCH_ZIP: "torch.load",
        Format.PICKLE: "torch.load",
        Format.TORCHSCRIPT: "torch.jit.load",
        Format.PT2: "torch.export.load",
        Format.GGUF: "llama_cpp.Llama",
        Format.ONNX: "onnxruntime.InferenceSession",
        Format.CTRANSLATE2: "ctranslate2",
    }
)


def default_path(found: Footprint) -> LoadPath:
    """Give the usual way of loading files of this format."""
    return PATHS[_DEFAULTS[found.format]]


def paths_for(found: Footprint) -> tuple[str, ...]:
    """Name the paths that read files of this format."""
    return tuple(path.name for path in _ALL if found.format in path.formats)
