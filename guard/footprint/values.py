"""What a checkpoint holds, as its headers tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

_FLOATING_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
)
"""Bytes of an element, by the names that safetensors uses."""

_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "float64": "F64", "double": "F64", "float32": "F32", "float": "F32", "fp32": "F32",
        "float16": "F16", "half": "F16", "fp16": "F16", "bfloat16": "BF16",
    }
)  # fmt: skip


class FootprintError(ValueError):
    """A path that holds no checkpoint which could be read; the text is one line for people."""


class Format(StrEnum):
    """In which shape a file holds its weights."""

    SAFETENSORS = "safetensors"
    TORCH_ZIP = "torch zip"
    TORCHSCRIPT = "TorchScript"
    PT2 = "exported program"
    PICKLE = "torch pickle"
    GGUF = "GGUF"
    ONNX = "ONNX"
    CTRANSLATE2 = "CTranslate2"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFile:
    """One file. `by_dtype`: bytes by element type as safetensors names it; empty where the headers do not say."""

    path: str
    format: Format
    file_bytes: int
    tensor_bytes: int
    by_dtype: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    on_device: bool = False  # a torch file whose tensors were saved from a GPU and go back there unless told otherwise


@dataclass(frozen=True, slots=True)
class Footprint:
    """A checkpoint: one file or all shards."""

    path: str
    files: tuple[WeightFile, ...]

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors as they are stored."""
        return sum(file.tensor_bytes for file in self.files)

    @property
    def format(self) -> Format:
        """The format of the (first) file; a checkpoint does not mix them."""
        return self.files[0].format

    def bytes_as(self, dtype: str | None) -> int | None:
        """Bytes of all tensors once those of floating point have that type; None where the headers do not say.

        Shards whose header was not read count as a mix like that of the others.
        """
        if dtype is None:
            return self.tensor_bytes
        width = _FLOATING_BYTES.get(dtype)
        told = sum(sum(file.by_dtype.values()) for file in self.files)
        if width is None or not told:
            return None
        as_wanted = sum(
            size * width // _FLOATING_BYTES[name] if name in _FLOATING_BYTES else size
            for file in self.files
            for name, size in file.by_dtype.items()
        )
        return as_wanted * self.tensor_bytes // told


def dtype_name(text: str) -> str | None:
    """Give a floating point type by its safetensors name ("torch.bfloat16" is BF16); None for what is none."""
    plain = text.removeprefix("torch.")
    name = _ALIASES.get(plain.lower(), plain.upper())
    return name if name in _FLOATING_BYTES else None
