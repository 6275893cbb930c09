"""Which failure an exception stands for, and the figures in its text. The texts are torch's and its libraries'."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.advice import advice
from guard.recognise import figures, fits, recognise

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10


class OutOfMemoryError(RuntimeError):
    """Named as torch names its own."""

    __module__ = "torch"


class CupyOutOfMemoryError(MemoryError):
    """Named as CuPy names its own."""

    __module__ = "cupy.cuda.memory"
    __qualname__ = "OutOfMemoryError"


TODAY = (
    "CUDA out of memory. Tried to allocate 52.00 MiB. GPU 1 has a total capacity of 1024.00 MiB of which 12.00 MiB is "
    "free. Process 4242 has 128.00 MiB memory in use. Including non-PyTorch memory, this process has 884.00 MiB memory "
    "in use. 256.00 MiB allowed; Of the allocated memory 750.00 MiB is allocated by PyTorch, and 70.00 MiB is "
    "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting"
)
BEFORE_2_1 = (
    "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.76 GiB total capacity; 8.50 GiB already allocated; "
    "825.00 MiB free; 8.60 GiB reserved in total by PyTorch)"
)
MISSPELT = (
    "CUDA out of memory. Tried to allocate 10.00 KiB. GPU 0 has a total capacty of 1.00 GiB of which 0 bytes is free."
)
ASYNC = (
    "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 256 bytes\n"
    "Requested               : 2.00 GiB\nDevice limit            : 1024.00 MiB\nFree (according to CUDA): 1010.00 MiB"
)
REJECTED = (
    "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction "
    "limit. Requested size: 700.00 MiB"
)
CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "21474836480 bytes. Error code 12 (Cannot allocate memory)"
)
WORKER = "Caught OutOfMemoryError in DataLoader worker process 0.\nOriginal Traceback ...\n" + "x" * 9000 + TODAY
NCCL = (
    "NCCL error in: ProcessGroupNCCL.cpp:3356, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL "
    "version 2.27.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'"
)
NCCL_SHM = (
    "ncclSystemError: System call failed\nLast error:\nError while creating shared memory segment /dev/shm/nccl-Rw3Yvz"
)

TODAYS_FIGURES: dict[str, object] = {
    "source": "torch",
    "requested_bytes": 52 * MIB,
    "free_bytes": 12 * MIB,
    "total_bytes": GIB,
    "limit_bytes": 256 * MIB,
    "allocated_bytes": 750 * MIB,
    "unallocated_bytes": 70 * MIB,
    "device": 1,
    "holders": f"4242: {128 * MIB}",
    "figures": "rounded",
}

CASES: dict[str, tuple[BaseException, str, dict[str, object]]] = {
    "today's wording": (
        OutOfMemoryError(TODAY),
        "cuda_out_of_memory",
        TODAYS_FIGURES,
    ),
    "before torch 2.1": (
        RuntimeError(BEFORE_2_1),
        "cuda_out_of_memory",
        {
            "source": "torch",
            "requested_bytes": 2 * GIB,
            "free_bytes": 825 * MIB,
            "total_bytes": round(10.76 * GIB),
            "allocated_bytes": round(8.5 * GIB),
            "reserved_bytes": round(8.6 * GIB),
            "device": 0,
            "figures": "rounded",
        },
    ),
    "misspelt": (
        OutOfMemoryError(MISSPELT),
        "cuda_out_of_memory",
        {
            "source": "torch",
            "requested_bytes": 10 * KIB,
            "total_bytes": GIB,
            "free_bytes": 0,
            "device": 0,
            "figures": "rounded",
        },
    ),
    "cudaMallocAsync": (
        OutOfMemoryError(ASYNC),
        "cuda_out_of_memory",
        {
            "source": "cudaMallocAsync",
            "requested_bytes": 2 * GIB,
            "free_bytes": 1010 * MIB,
            "total_bytes": GIB,
            "allocated_bytes": 256,
            "device": 0,
            "figures": "rounded",
        },
    ),
    "rejected": (
        OutOfMemoryError(REJECTED),
        "cuda_out_of_memory",
        {"source": "per-process fraction", "requested_bytes": 700 * MIB, "figures": "rounded"},
    ),
    "absurd": (
        OutOfMemoryError("CUDA out of memory. Tried to allocate more than 1EB memory."),
        "cuda_out_of_memory",
        {"source": "torch"},
    ),
    "unknown wording of torch's type": (OutOfMemoryError("new words"), "cuda_out_of_memory", {"source": "torch"}),
    "outside the allocator": (
        OutOfMemoryError(
            "CUDA ran out of memory outside PyTorch's allocator. If this workload uses many dynamic shapes"
        ),
        "cuda_out_of_memory",
        {"source": "cudnn"},
    ),
    "in a DataLoader worker": (
        RuntimeError(WORKER),
        "cuda_out_of_memory",
        TODAYS_FIGURES,
    ),
    "launch": (
        RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'"),
        "cuda_out_of_memory",
        {"source": "driver"},
    ),
    "cublas": (
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        "cuda_out_of_memory",
        {"source": "cublas"},
    ),
    "cusolver": (
        RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
        "cuda_out_of_memory",
        {"source": "cusolver"},
    ),
    "cufft": (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), "cuda_out_of_memory", {"source": "cufft"}),
    "cudnn": (
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        "cuda_out_of_memory",
        {"source": "cudnn"},
    ),
    "nccl": (RuntimeError(NCCL), "cuda_out_of_memory", {"source": "nccl"}),
    "triton": (RuntimeError("Triton Error [CUDA]: out of memory"), "cuda_out_of_memory", {"source": "triton"}),
    "cupy": (
        CupyOutOfMemoryError("Out of memory allocating 1,073,741,824 bytes (allocated so far: 512 bytes)."),
        "cuda_out_of_memory",
        {"source": "cupy", "requested_bytes": GIB},
    ),
    "hip": (
        OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has"),
        "cuda_out_of_memory",
        {"source": "torch", "requested_bytes": 2 * GIB, "device": 0, "figures": "rounded"},
    ),
    "mps": (
        RuntimeError("MPS backend out of memory (MPS allocated: 5.0 GiB, max allowed: 9 GiB)"),
        "device_out_of_memory",
        {"source": "mps"},
    ),
    "xla": (
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4 bytes."),
        "device_out_of_memory",
        {"source": "xla"},
    ),
    "perhaps cublas": (
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        "cuda_library_failure",
        {"source": "cublas"},
    ),
    "perhaps cudnn": (
        RuntimeError("GET was unable to find an engine to execute this computation"),
        "cuda_library_failure",
        {"source": "cudnn"},
    ),
    "cpu allocator": (
        RuntimeError(CPU),
        "cpu_allocator",
        {"source": "torch", "requested_bytes": 20 * GIB, "errno": 12},
    ),
    "mmap": (
        RuntimeError("unable to mmap 1024 bytes from file </models/a.bin>: Cannot allocate memory (12)"),
        "mmap",
        {"source": "torch", "requested_bytes": 1024, "errno": 12, "file": "/models/a.bin"},
    ),
    "shared memory": (
        RuntimeError("unable to allocate shared memory(shm) for file </torch_1_2_0>: No space left on device (28)"),
        "shared_memory",
        {"source": "torch", "errno": 28, "file": "/torch_1_2_0"},
    ),
    "shared memory of older torch": (
        RuntimeError("unable to write to file </torch_1_2_0>: No space left on device (28)"),
        "shared_memory",
        {"source": "torch", "errno": 28, "file": "/torch_1_2_0"},
    ),
    "bus error of a worker": (
        RuntimeError(
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers"
        ),
        "shared_memory",
        {"source": "torch"},
    ),
    "nccl's shared memory": (RuntimeError(NCCL_SHM), "shared_memory", {"source": "nccl"}),
    "file in shared memory": (
        OSError(errno.ENOSPC, "No space left on device", "/dev/shm/psm_1"),
        "shared_memory",
        {"source": "system"},
    ),
    "copy to shared memory": (
        OSError(errno.ENOSPC, "No space left on device", "/models/x", None, "/dev/shm/x"),
        "shared_memory",
        {"source": "system"},
    ),
    "numpy": (
        MemoryError("Unable to allocate 10.0 GiB for an array with shape (10737418240,) and data type uint8"),
        "memory_error",
        {"source": "python", "requested_bytes": 10 * GIB, "figures": "rounded"},
    ),
    "c++": (RuntimeError("std::bad_alloc"), "memory_error", {"source": "c++"}),
    "python": (MemoryError(), "memory_error", {"source": "python"}),
    "system": (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory_error", {"source": "system"}),
}


@pytest.mark.parametrize("name", CASES)
def test_kind_source_and_figures(name: str) -> None:
    """Type and text tell kind, source and every figure, and there is something to do about each."""
    exc, kind, fields = CASES[name]
    found = recognise(exc)
    assert found is not None
    assert (kind, fields) == (found.kind, dict(found.fields))
    assert advice(found.kind, found.fields)


@pytest.mark.parametrize(
    "exc",
    [
        RuntimeError("shape mismatch"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("unable to open shared memory object </torch_1> in read-write mode: Too many open files (24)"),
        RuntimeError("unable to write to file </data/log>: Permission denied (13)"),
        OSError(errno.ENOSPC, "No space left on device", "/data/log"),
        OSError(errno.ENOSPC, "No space left on device", "/dev/shm/x", None, "/data/x"),
        OSError(errno.ENOSPC, "No space left on device"),  # while there is room in /dev/shm
        ValueError("CUDA out of memory"),
        KeyboardInterrupt(),
    ],
    ids=str,
)
def test_other_failures_are_none(exc: BaseException) -> None:
    """What is not about memory is not taken for it."""
    assert recognise(exc) is None


def test_groups_and_causes() -> None:
    """A failure inside an exception group, or behind another exception, is found; a cycle ends."""
    group = BaseExceptionGroup(
        "tasks", [ValueError(1), ExceptionGroup("inner", [KeyError(2), OutOfMemoryError(TODAY)])]
    )
    assert getattr(recognise(group), "kind", None) == "cuda_out_of_memory"
    one, two = ValueError(), ValueError()
    one.__context__, two.__context__ = two, one
    assert recognise(one) is None


def test_pinned_memory_is_told_by_the_line() -> None:
    """The line that raises decides between host and card, as cudaHostAlloc fails with the words of a full card."""

    def use(*, pin_memory: bool = False) -> bool:
        return pin_memory

    for code, kind in (
        ("raise error\ntensor.pin_memory()", "cuda_out_of_memory"),
        ("tensor.pin_memory(0); raise error", "pinned_memory"),
        ("use(pin_memory=True); raise error", "pinned_memory"),
    ):
        error = RuntimeError("CUDA error: out of memory")
        tensor = SimpleNamespace(pin_memory=id)
        with pytest.raises(RuntimeError) as caught:
            exec(code, {"error": error, "tensor": tensor, "use": use})
        assert (code, kind) == (code, getattr(recognise(caught.value), "kind", None))


@given(st.text(max_size=300))
def test_figures_of_any_text(text: str) -> None:
    """No text makes it raise, and every figure is a number or short text."""
    for value in figures(text, "mmap").values():
        assert isinstance(value, int) or len(str(value)) < 200


@given(st.integers(min_value=1, max_value=1 << 50))
def test_rounded_sizes_fit(size: int) -> None:
    """A size in torch's words fits the exact one, and no size that is a percent off."""
    shift, unit = next(((s, u) for s, u in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if size > 1 << s), (0, "bytes"))
    said = f"{size / (1 << shift):.2f} {unit}" if shift else f"{size} bytes"
    read = figures(f"Tried to allocate {said}. GPU 0 has")["requested_bytes"]
    assert fits(size, read)
    assert not fits(size + max(size // 50, 1 << shift), read)


def test_fragmentation_is_advised_only_when_it_is_there() -> None:
    """Idle reserved memory that could have held the request leads to the hint, anything less does not."""
    fields: dict[str, str | int | float] = {
        "reserved_bytes": GIB,
        "allocated_bytes": GIB // 2,
        "requested_bytes": GIB // 4,
    }
    assert "expandable_segments" in advice("cuda_out_of_memory", fields)
    assert "expandable_segments" not in advice("cuda_out_of_memory", {**fields, "requested_bytes": GIB})
    assert advice("exception", fields) == ""
