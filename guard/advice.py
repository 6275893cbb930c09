"""What to do about each kind of memory failure, in one sentence. Pure."""

from __future__ import annotations

from typing import Final

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_FRAGMENTED_RATIO: Final = 0.25
"""Of reserved memory lying idle: from here on the allocator's own cache could have served much of what was asked."""

_BY_SOURCE: Final = {
    "per-process fraction": "the fraction set for this process is used up: lower the load, or raise the fraction",
    "cudnn": "cuDNN allocates outside torch: leave it room with guard.cuda_memory(fraction=0.9)",
    "cublas": "cuBLAS allocates outside torch: leave it room with guard.cuda_memory(fraction=0.9)",
    "nccl": "NCCL allocates outside torch: leave it room with guard.cuda_memory(fraction=0.9), lower NCCL_BUFFSIZE",
    "cudaHostAlloc": "pin less host memory: torch rounds each pinned block up to a power of two; check the limit "
    "of the container and `ulimit -l`",
}
_BY_KIND: Final = {
    "cuda_out_of_memory": "the GPU is full: use smaller batches, a shorter context or a smaller model; `holders` says "
    "who is on it",
    "cuda_library_failure": "often the GPU has no memory left: look at nvidia-smi and at earlier failures in this log",
    "device_out_of_memory": "the accelerator is full: use smaller batches or a smaller model",
    "pinned_memory": "pin less host memory, or raise the memory limit",
    "cpu_allocator": "host memory ran out: raise the memory limit, load with mmap=True and assign=True, or lower the "
    "number of workers",
    "memory_error": "host memory ran out: raise the memory limit or `ulimit -v`, or load less at once",
    "mmap": "the file could not be mapped: check `ulimit -v`, vm.max_map_count and vm.overcommit_memory",
    "shared_memory": "shared memory is full: raise it (docker --shm-size, compose shm_size, in Kubernetes an emptyDir "
    "with medium: Memory on /dev/shm), or use num_workers=0",
}


def advice(kind: str, fields: Mapping[str, str | int | float]) -> str:
    """Say what to do; nothing where a failure is not about memory."""
    said = _BY_SOURCE.get(str(fields.get("source"))) if kind != "shared_memory" else None
    said = said or _BY_KIND.get(kind, "")
    if kind == "cuda_out_of_memory" and _fragmented(fields):
        said += "; much of what torch has reserved lies idle: try PYTORCH_ALLOC_CONF=expandable_segments:True"
    return said


def _fragmented(fields: Mapping[str, str | int | float]) -> bool:
    reserved, allocated, requested = (fields.get(f"{name}_bytes") for name in ("reserved", "allocated", "requested"))
    if not isinstance(reserved, int) or not isinstance(allocated, int) or not isinstance(requested, int):
        return False
    idle = reserved - allocated
    return idle >= requested and idle >= reserved * _FRAGMENTED_RATIO
