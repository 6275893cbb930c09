"""GPU allocations that failed in torch, in the shapes of every version and back-end, and in CUDA's own libraries."""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.patterns import Pattern
from sidecar.explain.sizes import ONE as _S
from sidecar.explain.sizes import limit, size
from sidecar.explain.values import Field
from sidecar.verdict.values import Confidence, EndClass

_GPU: Final = EndClass.GPU_ALLOCATION_FAILURE
_TORCH: Final = {
    "requested_bytes": rf"[Tt]ried to allocate (?:more than )?({_S})",
    "total_bytes": rf"total capac(?:i)?ty of ({_S})|({_S}) total capacity",
    "free_bytes": rf"of which ({_S}) is free|({_S}) free\b",
    "process_in_use_bytes": rf"this process has ({_S}) memory in use",
    "allocated_bytes": rf"allocated memory ({_S}) is allocated by PyTorch|({_S}) already allocated",
    "reserved_bytes": rf"({_S}) reserved in total by PyTorch",
    "reserved_unallocated_bytes": rf"({_S}) is reserved by PyTorch but unallocated",
    "private_pools_bytes": rf"({_S}) allocated in private pools",
    "allowed_bytes": rf"({_S}) allowed\b",
}
_TORCH_RE: Final = {name: re.compile(text) for name, text in _TORCH.items()}
_INDEX: Final = re.compile(r"\b[A-Z]{2,4} (\d{1,3})(?: has a total|; )")
_OTHERS: Final = re.compile(rf"Process (\d{{1,10}}) has ({_S}) memory in use")
_WORKER: Final = re.compile(r"\(\w{1,40} pid=(\d{1,10})")
_RANK: Final = re.compile(r"\[rank(\d{1,5})\]|\b(?:local_)?rank[ =:](\d{1,5})")
_ASYNC: Final = {
    "allocated_bytes": re.compile(rf"Currently allocated\s*: ({_S})"),
    "requested_bytes": re.compile(rf"Requested\s*: ({_S})"),
    "total_bytes": re.compile(rf"Device limit\s*: ({_S})"),
    "free_bytes": re.compile(rf"Free \(according to CUDA\)\s*: ({_S})"),
    "limit_bytes": re.compile(rf"PyTorch limit[^:]{{0,80}}:\s*({_S})"),
}
_MPS: Final = re.compile(
    rf"MPS allocated: ({_S}), other allocations: ({_S}), max allowed: ({_S})\)(?:\. Tried to allocate ({_S}))?"
)


def _first(found: re.Match[str] | None) -> str | None:
    return None if found is None else next((part for part in found.groups() if part is not None), None)


def _torch(text: str, found: re.Match[str]) -> dict[str, Field]:
    """Read the fields of torch's message; what a version does not print stays unknown."""
    text = text[max(0, text.find(found[0])) :]
    sizes = {name: size(_first(pattern.search(text))) for name, pattern in _TORCH_RE.items()}
    index = _INDEX.search(text)
    worker = _WORKER.search(found.string[: found.start()])
    rank = _RANK.search(found.string[: found.start()])
    others: list[Field] = [{"pid": int(pid), "in_use_bytes": size(amount)} for pid, amount in _OTHERS.findall(text)]
    fields: dict[str, Field] = {
        "framework": "torch",
        "device": found[1].lower() if found.groups() and found[1] else "cuda",
        "gpu_index": None if index is None else int(index[1]),
        **sizes,
        "other_processes": others or None,
        "worker_pid": None if worker is None else int(worker[1]),
        "rank": None if rank is None else int(rank[1] or rank[2]),
    }
    return {**fields, **_torch_notes(sizes)}


def _torch_notes(sizes: dict[str, int | None]) -> dict[str, Field]:
    """Say what the numbers mean together."""
    requested, free, allocated, used = (
        sizes[name] for name in ("requested_bytes", "free_bytes", "allocated_bytes", "process_in_use_bytes")
    )
    notes: dict[str, Field] = {}
    if sizes["allowed_bytes"] is not None:
        notes["subtype"] = "per_process_cap"
    if requested is not None and free is not None and requested <= free:
        notes["requested_le_free"] = True
    if used is not None and allocated is not None and allocated > used:
        notes["process_in_use_unreliable"] = True
    if allocated == 0:
        notes["implied_other_usage"] = True
    return notes


def _async(text: str, found: re.Match[str]) -> dict[str, Field]:
    sizes: dict[str, Field] = {name: limit(_first(pattern.search(text))) for name, pattern in _ASYNC.items()}
    device = found[1] or found[2]
    index = None if device is None else int(device)
    return {"framework": "torch", "allocator": "cudaMallocAsync", "device": "cuda", "gpu_index": index, **sizes}


def _mps(text: str, _found: re.Match[str]) -> dict[str, Field]:
    found = _MPS.search(text)
    names = ("allocated_bytes", "other_allocations_bytes", "limit_bytes", "requested_bytes")
    values = (None,) * len(names) if found is None else found.groups()
    return {"framework": "torch", "device": "mps", **dict(zip(names, map(size, values), strict=True))}


def _nccl(text: str, _found: re.Match[str]) -> dict[str, Field]:
    requested = re.search(r"Failed to CUDA calloc(?: async)? (\d{1,20}) bytes", text)
    rank = re.search(r":\d+:\d+ \[(\d{1,4})\]", text)
    second = re.search(r"Cuda failure (?:\d+ )?'(?!out of memory)([^']{1,60})'", text)
    return {
        "framework": "nccl",
        "local_rank": None if rank is None else int(rank[1]),
        "requested_bytes": None if requested is None else int(requested[1]),
        "total_bytes": None,
        "secondary_error": None if second is None else second[1],
    }


def _library(text: str, found: re.Match[str]) -> dict[str, Field]:
    library = re.match(r"[A-Za-z]+", found[0])
    return {
        "framework": "cuda" if library is None else library[0].lower(),
        "requested_bytes": None,
        "total_bytes": None,
        "size_known": False,
        "gpu_index": _device_in(text),
    }


def _device_in(text: str) -> int | None:
    found = re.search(r"\b(?:device|GPU|cuda)[ :=](\d{1,3})\b", text)
    return None if found is None else int(found[1])


def _plain(text: str, _found: re.Match[str]) -> dict[str, Field]:
    """CUDA's own messages: at most a size and a device."""
    found = re.search(rf"(?:allocat\w+|size|request\w*)[ :=]{{1,3}}(?:of |size )?({_S})|(\d{{1,20}}) bytes", text)
    requested = None if found is None else size(found[1]) if found[1] else int(found[2])
    return {"requested_bytes": requested, "gpu_index": _device_in(text), "device": "cuda"}


def _hpu(text: str, _found: re.Match[str]) -> dict[str, Field]:
    found = re.search(r"size[:= ]{1,3}(\d{1,20})", text)
    return {"framework": "torch", "device": "hpu", "requested_bytes": None if found is None else int(found[1])}


def _gpu(subject: str, words: tuple[str, ...], start: str, summary: str, **more: object) -> Pattern:
    given: dict[str, object] = {"end_class": _GPU, **more}
    return Pattern(subject=subject, words=words, start=re.compile(start), summary=summary, **given)  # type: ignore[arg-type]


PATTERNS: Final = (
    _gpu(
        "torch",
        ("out of memory",),
        r"\b(CUDA|HIP|XPU|MUSA|NPU|MLU|GCU|SPYRE) out of memory(?=\.|,|$|\s+Tried|\s+occurred)",
        "torch could not allocate GPU memory",
        read=_torch,
        after=5,
    ),
    _gpu(
        "torch_async",
        ("allocation on device",),
        r"Allocation on device(?: (\d{1,3}))? would exceed allowed memory"
        r"|OutOfMemoryError: Allocation on device(?: (\d{1,3}))?",
        "torch could not allocate GPU memory (cudaMallocAsync back-end)",
        read=_async,
        after=7,
    ),
    _gpu(
        "mps",
        ("mps backend out of memory",),
        r"MPS backend out of memory",
        "torch could not allocate MPS memory",
        read=_mps,
        after=1,
    ),
    _gpu(
        "torch",
        ("preemptively rejected",),
        r"Allocation was preemptively rejected because it would exceed",
        "torch refused an allocation beyond its share of the GPU",
        read=_plain,
        after=2,
    ),
    _gpu(
        "hpu", ("pt_devmem",), r"MODULE:PT_DEVMEM Allocation failed", "torch could not allocate HPU memory", read=_hpu
    ),
    _gpu(
        "neuron",
        ("nrt", "log_dev_mem"),
        r"NRT allocation failed|log_dev_mem\s+Failed to allocate|nrt_tensor_allocate.{0,80}(?:status=4|[Ff]ail)",
        "the Neuron runtime could not allocate device memory",
        read=_plain,
    ),
    _gpu(
        "rbln",
        ("sys_enomem", "sys_ebusy"),
        r"SYS_ENOMEM: Out of memory|SYS_EBUSY: Lack of device memory",
        "the device had no memory left",
    ),
    _gpu(
        "nccl",
        ("cuda failure", "cuda calloc"),
        r"Cuda failure (?:\d+ )?'out of memory'|Failed to CUDA (?:calloc|malloc)(?: async)? \d+ bytes",
        "NCCL could not allocate GPU memory",
        read=_nccl,
        after=3,
        again=False,
    ),
    _gpu(
        "library",
        ("alloc_failed", "insufficient_resources"),
        r"(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT|HIPBLAS|MIOPEN|ROCBLAS)_(?:STATUS_)?(?:ALLOC_FAILED"
        r"|INSUFFICIENT_RESOURCES)",
        "a CUDA library could not allocate GPU memory",
        read=_library,
    ),
    _gpu(
        "cuda",
        ("out of memory", "out_of_memory", "outofmemory", "memoryallocation", "error 2"),
        r"(?:CUDA|HIP|cuda|hip)\w{0,20}(?: driver| runtime)?(?: API)? ?(?:error|failure"
        r"|Error)(?: code)?[ :(]{1,3}(?:2\b\)?[: ]{0,3})?"
        r"\(?out of memory|cudaErrorMemoryAllocation|hipErrorOutOfMemory|CUDA_ERROR_OUT_OF_MEMORY"
        r"|Error \[CUDA\]: out of memory"
        r"|(?:cudaMalloc\w*|hipMalloc\w*|cuMemAlloc\w*|cuMemCreate)(?:\(\))?(?: retry)? failed:? ?\(?(?:out of memory"
        r"|2\b)|Cuda Runtime \(out of memory\)"
        r"|model_lifecycle\.cc.{1,400}: out of memory|unable to create stream: out of memory"
        r"|CUDA runtime .{0,80}Status: out of memory|CUDA ran out of memory|CUDA failed with error out of memory"
        r"|CUDA runtime error in \w{0,3}::\w{1,40}\(.{1,400}\): out of memory|CUDA error 2 at .{1,200}?: out of memory",
        "the CUDA runtime had no GPU memory left",
        read=_plain,
        confidence=Confidence.MEDIUM,
        after=1,
        unless=re.compile(r"ggml_\w+:|Cuda failure"),
    ),
    _gpu(
        "torch",
        ("outofmemoryerror",),
        r"torch(?:\.cuda)?\.OutOfMemoryError",
        "torch ran out of GPU memory",
        read=_torch,
        after=5,
        confidence=Confidence.MEDIUM,
    ),
    _gpu(
        "nvswitch",
        ("sxid",),
        r"SXid \(PCI:[0-9a-fA-F:.]{4,20}\): (\d{1,6}), Fatal",
        "an NVSwitch, which links the GPUs, met a fatal error",
        end_class=EndClass.DEVICE_RESET,
        read=lambda _text, found: {"sxid": int(found[1])},
        again=False,
        source="GPU driver",
    ),
    _gpu(
        "ambiguous",
        ("cublas_status", "cudnn_status", "cuda error: unknown", "unable to find an engine", "cusolver_status"),
        r"(?:CUBLAS|CUDNN|CUSOLVER)_STATUS_(?:INTERNAL_ERROR|NOT_INITIALIZED|EXECUTION_FAILED)"
        r"|unable to find an engine to execute|CUDA error: unknown error",
        "a CUDA library failed; a GPU without free memory is a usual reason, but the message does not say so",
        end_class=EndClass.UNKNOWN,
        confidence=Confidence.LOW,
        read=lambda _text, found: {
            "framework": "cudnn" if "engine" in found[0] else found[0].split("_")[0].lower(),
            "requested_bytes": None,
        },
        missing=("free GPU memory at that moment (nvidia-smi, or the guard's record)",),
    ),
)
