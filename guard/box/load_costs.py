"""What loads cost in memory that reclaim cannot take, by the label under which the box holds them.

A cost is a multiple of the operation's expected bytes, in anonymous memory; mapped pages cost nothing, as reclaim
takes them. Each label has two: what the operation adds at least, to claim that it cannot fit, and at most, to accept
growth as explained. Both are about the marked call: memory that its caller holds already (the bytes behind a BytesIO)
is not in it. Measured on the CPU, see docs/preflight.md. A label that is not here claims nothing and explains one time
its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Cost:
    """Anonymous memory as a multiple of the bytes expected."""

    at_least: float
    at_most: float


COSTS: Final[Mapping[str, Cost]] = MappingProxyType(
    {
        "torch.load": Cost(1.0, 1.0),
        "torch.load(BytesIO)": Cost(1.0, 1.0),
        "torch.load(mmap=True)": Cost(0.0, 1.0),  # copies on write
        "torch.load(map_location=device)": Cost(0.0, 1.0),  # one storage at a time passes through the host
        "torch.jit.load": Cost(1.0, 1.0),
        "torch.export.load": Cost(1.0, 1.1),
        "torch.aoti_load_package": Cost(0.0, 2.0),
        "safetensors.torch.load": Cost(1.0, 2.0),  # the caller's bytes are there already, or are not
        "safetensors.torch.load_file": Cost(0.0, 0.0),
        "safetensors.torch.load_file(backend='pread')": Cost(1.0, 1.0),
        "safetensors.torch.load_model": Cost(0.0, 1.0),
        "safetensors.numpy.load_file": Cost(1.0, 1.0),
        "safetensors.numpy.load": Cost(1.0, 2.0),
        "safetensors.flax.load_file": Cost(1.0, 2.0),
        "safetensors.flax.load": Cost(1.0, 3.5),
        "safetensors.safe_open": Cost(0.0, 1.0),  # mapped; a clone of each tensor costs its size
        "load_state_dict": Cost(0.0, 1.0),  # into memory that was written to before, or not
        "transformers.from_pretrained": Cost(0.0, 2.0),  # mapped, or converted from 16 bits to 32
        "accelerate.load_checkpoint": Cost(0.0, 2.0),
        "diffusers.from_pretrained": Cost(0.0, 2.0),
        "onnxruntime.InferenceSession": Cost(1.0, 1.2),
        "onnxruntime.InferenceSession(bytes)": Cost(1.0, 2.0),
        "ctranslate2": Cost(0.0, 1.0),  # converts to the compute type while reading
        "gguf.GGUFReader": Cost(0.0, 0.0),
        "llama_cpp.Llama": Cost(0.0, 1.1),  # mapped; or read with use_mmap=False, or repacked: then its context too
    }
)
OTHER: Final = Cost(0.0, 1.0)
