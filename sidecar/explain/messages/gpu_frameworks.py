"""GPU memory that ran out in inference engines and other frameworks: ggml, JAX, TensorFlow, ONNX, vLLM, SGLang ..."""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.patterns import Pattern
from sidecar.explain.sizes import ONE, array_bytes, bytes_of, size
from sidecar.explain.values import Field
from sidecar.verdict.values import Confidence, EndClass

_GPU: Final = EndClass.GPU_ALLOCATION_FAILURE
_HOST: Final = EndClass.HOST_ALLOCATION_FAILURE
IMPLAUSIBLE_BYTES: Final = 1 << 50
"""No machine has a pebibyte for one tensor: a shape is corrupt, or a size overflowed."""
_CLOSE: Final = 1 << 20  # "1825.82 MiB" and the exact count on the next line are the same request


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _ggml(text: str, _found: re.Match[str]) -> dict[str, Field]:
    printed = re.search(rf"(?:allocating|buffer, size =) {{0,8}}({ONE})", text)
    exact = re.search(r"(?:buffer of size|allocation of size) (\d{1,20})", text)
    device = re.search(
        r"\bon device (\d{1,3})\b|failed to allocate (?:CUDA|ROCm|Vulkan|SYCL|Metal|CANN|MUSA)(\d{1,3}) buffer", text
    )
    purpose = re.search(
        r"failed to allocate buffer for ([a-z ]{1,40}?)\s*(?:$|[.,;)])|\b(kv|cache|compute)\b[a-z ]{0,20} failed", text
    )
    buffer = None if purpose is None else purpose[1] or ("kv cache" if purpose[2] in ("kv", "cache") else purpose[2])
    mib = None if printed is None else re.match(r"[\d.,]+", printed[1])
    return {
        "framework": "ggml-vulkan" if "vulkan" in text else "ggml",
        "gpu_index": None if device is None else int(device[1] or device[2]),
        "requested_bytes": int(exact[1]) if exact else size(printed[1]) if printed else None,
        "requested_mib": float(mib[0].replace(",", ".")) if mib and printed and "MiB" in printed[1] else None,
        "buffer": buffer,
    }


def _jax(text: str, _found: re.Match[str]) -> dict[str, Field]:
    asked = re.search(
        rf"trying to allocate (\d{{1,20}}) bytes|\((\d{{1,20}})B\)|allocating (\d{{1,20}}) bytes|(?:request for"
        rf"|allocate) ({ONE})",
        text,
    )
    plain = None if asked is None else asked[1] or asked[2] or asked[3]
    device = re.search(r"device ordinal (\d{1,3})|\bGPU_(\d{1,3})_bfc|TPU_(\d{1,3})", text)
    hbm = re.search(rf"Used ({ONE}) of ({ONE}) hbm", text)
    return {
        "framework": "jax",
        "requested_bytes": int(plain) if plain else None if asked is None else size(asked[4]),
        "gpu_index": None if device is None else int(next(part for part in device.groups() if part)),
        "total_allocation_bytes": size(_group(rf"total allocation:\s*({ONE})", text)),
        "temp_allocation_bytes": size(_group(rf"temp allocation:\s*({ONE})", text)),
        "used_bytes": None if hbm is None else size(hbm[1]),
        "total_bytes": None if hbm is None else size(hbm[2]),
    }


def _group(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return None if found is None else found[1]


def _tensorflow(text: str, found: re.Match[str]) -> dict[str, Field]:
    shape: list[Field] = [int(one) for one in re.findall(r"\d{1,18}", found[1])]
    device = re.search(r"device:GPU:(\d{1,3})", text)
    on_cpu = re.search(r"device:CPU:\d|by allocator (?:cpu|mklcpu)", text)
    return {
        "framework": "tensorflow",
        "shape": shape,
        "dtype": found[2],
        "requested_bytes": array_bytes(found[1], found[2]),
        "gpu_index": None if device is None else int(device[1]),
        "end_class": (_HOST if on_cpu and device is None else _GPU).value,
    }


def _bfc_dump(text: str, _found: re.Match[str]) -> dict[str, Field]:
    """The allocator's own statistics, printed after a failure. A limit below the card's size was set by a user."""
    limit = _int(_group(r"\bLimit:\s+(\d{1,20})", text) or _group(r"memory_limit_: (\d{1,20})", text))
    return {
        "framework": "tensorflow",
        "limit_bytes": limit,
        "in_use_bytes": _int(_group(r"\bInUse:\s+(\d{1,20})", text)),
        "max_in_use_bytes": _int(_group(r"MaxInUse:\s+(\d{1,20})", text)),
        "available_bytes": _int(_group(r"available bytes: (-?\d{1,20})", text)),
        "requested_bytes": None,
        "cap_is_user_set": limit is not None and limit % (1 << 28) == 0,
    }


def _bfc(text: str, _found: re.Match[str]) -> dict[str, Field]:
    allocator = _group(r"Allocator \(([\w-]{1,40})\)", text)
    index = _group(r"GPU_(\d{1,3})_bfc", text)
    asked = _group(rf"trying to allocate ({ONE})", text) or _group(r"\((\d{1,20}) bytes\)", text)
    return {
        "framework": "tensorflow",
        "allocator": allocator,
        "requested_bytes": _int(asked) if asked and asked.isdigit() else size(asked),
        "gpu_index": _int(index),
        "end_class": (_HOST if allocator and "cpu" in allocator.lower() else _GPU).value,
    }


def _onnx(text: str, found: re.Match[str]) -> dict[str, Field]:
    """The arena's message is the same for the CPU; NCHWc is a layout of the CPU provider alone."""
    node = _group(r"Name:\\?'([^'\\]{1,200})", text)
    on_cpu = re.search(r"_nchwc\b|CPUExecutionProvider|OrtMemoryInfo name:Cpu", text, re.IGNORECASE) is not None
    requested = int(found[1] or found[2])
    fields: dict[str, Field] = {
        "framework": "onnxruntime",
        "node": node,
        "requested_bytes": requested,
        "device": "cpu" if on_cpu else "cuda",
        "device_certainty": "inferred from the node's CPU layout" if on_cpu else "not said in the message",
        "end_class": (_HOST if on_cpu else _GPU).value,
        "confidence": Confidence.MEDIUM.value,
    }
    if requested >= IMPLAUSIBLE_BYTES:
        fields |= {
            "requested_implausible": True,
            "likely_cause": "corrupt shape or overflowed size, not memory pressure",
        }
    return fields


def _startup(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {
        "framework": "vllm",
        "subtype": "insufficient_at_startup",
        "device": found[1],
        "gpu_index": _int(_group(r"^(?:cuda|xpu|hip):(\d{1,3})$", found[1] or "")),
        "free_bytes": bytes_of(found[2], "GiB"),
        "total_bytes": bytes_of(found[3], "GiB"),
        "desired_utilization": float(found[4]),
        "desired_bytes": bytes_of(found[5], "GiB"),
        "requested_bytes": None,
    }


def _vllm(text: str, _found: re.Match[str]) -> dict[str, Field]:
    need = re.search(rf"\(({ONE}) KV cache is needed.{{0,120}}?\(({ONE})\)", text)
    return {
        "framework": "vllm",
        "subtype": "insufficient_at_startup",
        "requested_bytes": None if need is None else size(need[1]),
        "free_bytes": None if need is None else size(need[2]),
    }


def _sglang(text: str, found: re.Match[str]) -> dict[str, Field]:
    ranks: list[Field] = sorted(set(re.findall(r"\b((?:DP\d+ )?TP\d+)\]", text)))
    return {
        "framework": "sglang",
        "subtype": "insufficient_at_startup",
        "profiled_tokens": _int(_group(r"profiled value (-?\d{1,18})", text)),
        "ranks": ranks or None,
        "avail_mem_gb": _float(_group(r"avail mem=(-?[\d.]{1,12}) GB", found.string)),
        "requested_bytes": None,
    }


def _load_end(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {"avail_mem_gb": _float(found[1]), "weights_gb": _float(found[2])}


def _float(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _paddle(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {
        "framework": "paddle",
        "gpu_index": int(found[1]),
        "requested_bytes": size(found[2]),
        "free_bytes": size(found[3]),
    }


def _tensorrt(text: str, _found: re.Match[str]) -> dict[str, Field]:
    return {"framework": "tensorrt", "requested_bytes": _int(_group(r"\((\d{1,20}) bytes\)|size (\d{1,20})", text))}


def _row(subject: str, words: tuple[str, ...], start: str, summary: str, **more: object) -> Pattern:
    given: dict[str, object] = {"end_class": _GPU, **more}
    return Pattern(subject=subject, words=words, start=re.compile(start), summary=summary, **given)  # type: ignore[arg-type]


PATTERNS: Final = (
    _row(
        "ggml",
        (
            "ggml_",
            "alloc_tensor_range",
            "outofdevicememory",
            "out_of_device_memory",
            " buffer for kv",
            "failed to allocate",
            "erroroutofmemory",
            "unable to allocate",
        ),
        r"ggml_\w{1,80}: (?:allocating .{1,40} on device|Device memory allocation of size|.{0,80}(?:cudaMalloc"
        r"|hipMalloc) failed)"
        r"|failed to allocate (?:CUDA|ROCm|Vulkan|SYCL|Metal|CANN|MUSA)\d{0,3} buffer|ErrorOutOfDeviceMemory"
        r"|OUT_OF_DEVICE_MEMORY"
        r"|ggml_metal_\w{1,60}: (?:error: )?failed to allocate buffer|CommandBufferCallbackErrorOutOfMemory"
        r"|failed to allocate buffer for kv cache"
        r"|unable to allocate (?:CUDA|ROCm|Vulkan|SYCL|Metal|CANN|MUSA)\d{0,3} buffer",
        "the inference engine could not allocate GPU memory",
        read=_ggml,
        after=4,
        again=False,
    ),
    _row(
        "jax",
        ("resource_exhausted",),
        r"RESOURCE_EXHAUSTED: .{0,200}?(?:[Oo]ut of memory|[Ff]ailed to allocate|Attempting to (?:reserve"
        r"|allocate)|allocation)",
        "JAX or XLA could not allocate device memory",
        read=_jax,
        after=8,
        again=False,
    ),
    _row(
        "tensorflow",
        ("oom when allocating tensor",),
        r"OOM when allocating tensor (?:with|of) shape ?(\[[\d,]{0,200}\]) and type (\w{1,20})",
        "TensorFlow could not allocate a tensor",
        read=_tensorflow,
        after=1,
    ),
    _row(
        "bfc",
        ("ran out of memory trying", "from device: cuda"),
        r"Allocator \([\w-]{1,40}\) ran out of memory trying to allocate"
        r"|failed to allocate .{1,60} from device: CUDA_ERROR_OUT_OF_MEMORY",
        "TensorFlow's allocator could not get GPU memory",
        read=_bfc,
        confidence=Confidence.MEDIUM,
    ),
    _row(
        "bfc_dump",
        ("total_region_allocated_bytes_",),
        r"total_region_allocated_bytes_: \d+ memory_limit_: \d+",
        "TensorFlow's allocator printed its state after a failed allocation",
        read=_bfc_dump,
        after=6,
        again=False,
        confidence=Confidence.MEDIUM,
    ),
    _row(
        "onnxruntime",
        ("requested buffer of size", "smaller than requested bytes"),
        r"Failed to allocate memory for requested buffer of size (\d{1,20})|smaller than requested bytes of (\d{1,20})",
        "ONNX Runtime could not allocate a buffer",
        read=_onnx,
    ),
    _row(
        "tensorrt",
        ("outofmemory", "gpu memory"),
        r"Error Code \d+: ?OutOfMemory|Requested amount of GPU memory \(\d+ bytes\) could not",
        "TensorRT could not allocate GPU memory",
        read=_tensorrt,
    ),
    _row(
        "paddle",
        ("out of memory error on gpu",),
        rf"Out of memory error on GPU (\d{{1,3}})\. Cannot allocate ({ONE}) memory.{{0,160}}?available memory "
        rf"is only ({ONE})",
        "Paddle could not allocate GPU memory",
        read=_paddle,
    ),
    _row(
        "vllm",
        ("on startup is less than",),
        r"[Ff]ree memory on device ?(\S{1,20})? ?\((-?[\d.]{1,12})/([\d.]{1,12}) GiB\) on startup is less "
        r"than desired GPU memory "
        r"utilization \(([\d.]{1,8}), ([\d.]{1,12}) GiB\)",
        "less GPU memory was free at the start than vLLM was told to take",
        read=_startup,
    ),
    _row(
        "vllm",
        ("cache blocks", "stored in kv cache", "kv cache is needed"),
        r"No available memory for the cache blocks|larger than the maximum number of tokens that can be "
        r"stored in KV cache"
        r"|KV cache is needed, which is larger than the available KV cache memory",
        "no GPU memory was left for vLLM's KV cache",
        read=_vllm,
        after=1,
    ),
    _row(
        "sglang",
        ("profiled value", "mem-fraction-static"),
        r"larger than the profiled value -\d+"
        r"|Not enough memory\. Please try (?:to increase|increasing) --mem-fraction-static",
        "the weights left SGLang no GPU memory for its KV cache",
        read=_sglang,
        after=2,
        again=False,
    ),
    _row(
        "sglang_load",
        ("load weight end",),
        r"Load weight end\..{0,200}?avail mem=([\d.]{1,12}) GB(?:, mem usage=([\d.]{1,12}) GB)?",
        "SGLang had loaded the weights",
        read=lambda text, found: {**_load_end(text, found), "role": "context"},
    ),
    _row(
        "sglang_slots",
        ("prefill out of memory", "decode out of memory", "runs out of memory"),
        r"(?:Prefill|Decode) out of memory|\balloc_\w{1,40} runs out of memory",
        "SGLang's pool of KV cache slots was exhausted; it is sized at the start, the card is not what was full",
        end_class=EndClass.APPLICATION_EXIT,
        confidence=Confidence.MEDIUM,
        after=2,
        read=lambda _text, _found: {"framework": "sglang", "subtype": "kv_slot_pool", "requested_bytes": None},
    ),
    _row(
        "sglang_watchdog",
        ("watchdog timeout (",),
        r"Watchdog timeout \(self\.watchdog_timeout=",
        "SGLang's own watchdog ended the server: its scheduler had not moved for so long",
        end_class=EndClass.HEALTH_CHECK,
        confidence=Confidence.MEDIUM,
        read=lambda _text, _found: {"framework": "sglang", "subtype": "sglang watchdog"},
    ),
    _row(
        "openvino",
        ("memory object allocation",),
        r"\[GPU\] Exceeded max size of memory object allocation: requested (\d{1,20}) bytes",
        "OpenVINO could not allocate GPU memory in one piece",
        read=lambda _text, found: {"framework": "openvino", "requested_bytes": int(found[1])},
    ),
    _row(
        "vram",
        ("insufficient vram", "enough memory resources"),
        r"Insufficient VRAM for model|\b8007000E Not enough memory resources",
        "the engine had no GPU memory left",
        confidence=Confidence.MEDIUM,
    ),
    _row(
        "tgi",
        ("prefill tokens",),
        r"Not enough memory to handle \d+ prefill tokens",
        "the warm-up of the text generation server did not fit into the GPU",
    ),
    _row(
        "cupy",
        ("out of memory allocating",),
        r"Out of memory allocating ([\d,]{1,26}) bytes \(allocated so far",
        "CuPy could not allocate GPU memory",
        read=lambda _text, found: {"framework": "cupy", "requested_bytes": int(found[1].replace(",", ""))},
    ),
    _row(
        "opencl",
        ("cl_mem_object", "cl_out_of", "ur_result_error"),
        r"CL_MEM_OBJECT_ALLOCATION_FAILURE|CL_OUT_OF_RESOURCES|UR_RESULT_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES)",
        "the device had no memory left",
        confidence=Confidence.MEDIUM,
    ),
)
