"""Which memory failure an exception stands for, and the figures that its text holds.

Pure, but for one look at whether /dev/shm is full where an exception of a full volume names no file.

torch has two types for this (`OutOfMemoryError`, `AcceleratorError`) and gives them no fields; every library under it
raises plain RuntimeErrors. So type first, then text. The texts were read in torch 2.14.1's own libraries and in issue
threads of older ones (the message was reworded in 2.1 and misspelt "capacty" for a while).

A text that may mean memory but need not ("CUBLAS_STATUS_NOT_INITIALIZED", "unable to find an engine") gets the kind
`cuda_library_failure`, which stands for no class of verdict: a guess is no evidence.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType

GPU: Final = "cuda_out_of_memory"
DEVICE: Final = "device_out_of_memory"  # an accelerator that is not CUDA or ROCm
UNSURE: Final = "cuda_library_failure"
PINNED: Final = "pinned_memory"
CPU: Final = "cpu_allocator"
MMAP: Final = "mmap"
SHM: Final = "shared_memory"
HOST: Final = "memory_error"

_SHM_FOLDER: Final = "/dev/shm/"  # noqa: S108 - only looked at
_CAUSES: Final = 8
"""How many exceptions of a chain or group are looked at."""
_HEAD, _TAIL = 8000, 2000
"""Characters of a text that are looked at: a wrapped exception has the original's text at its end."""

Scalar = str | int | float


@dataclass(frozen=True, slots=True)
class Memory:
    """A recognised memory failure. `text` is that of the exception in the chain that was recognised."""

    kind: str
    source: str  # which allocator, library or call
    text: str = ""
    fields: Mapping[str, Scalar] = field(default_factory=dict)


_ROWS: Final = (
    # (kind, source, pattern); first match wins. Matched in lower case against RuntimeError and OSError.
    (SHM, "nccl", r"error while creating shared memory segment"),
    (SHM, "torch", r"unable to allocate shared memory|couldn't allocate shared memory segment"),
    (SHM, "torch", r"unable to (?:write to|open|resize)[^<]{0,60}<[^>]*>[^(]{0,80}(?:no space left|cannot allocate)"),
    (SHM, "torch", r"out of shared memory|killed by signal: bus error"),
    (GPU, "per-process fraction", r"rejected because it would exceed per_process_memory_fraction"),
    (GPU, "cudnn", r"cuda ran out of memory outside pytorch's allocator|cudnn_status\w*alloc\w*_failed"),
    (GPU, "cudaMallocAsync", r"allocation on device \d+ would exceed allowed memory"),
    (GPU, "nccl", r"nccl[\s\S]*out of memory"),
    (GPU, "triton", r"triton error \[(?:cuda|hip)\]: out of memory"),
    (GPU, "cublas", r"cublas_status_alloc_failed|hipblas_status_alloc_failed"),
    (GPU, "cusolver", r"cusolver_status_alloc_failed"),
    (GPU, "cufft", r"cufft_alloc_failed"),
    (GPU, "cusparse", r"cusparse_status_alloc_failed"),
    (GPU, "torch", r"(?:cuda|hip) out of memory"),
    (GPU, "driver", r"(?:cuda|hip) error: out of memory|cudaerrormemoryallocation|cuda_error_out_of_memory"),
    (DEVICE, "mps", r"mps backend out of memory"),
    (DEVICE, "xpu", r"xpu out of memory"),
    (DEVICE, "hpu", r"pt_devmem[\s\S]{0,40}allocation failed"),
    (DEVICE, "neuron", r"nrt allocation failed for size"),
    (DEVICE, "xla", r"resource_exhausted: (?:xla:tpu|out of memory)"),
    (UNSURE, "cublas", r"cublas_status_not_initialized when calling .?cublascreate"),
    (UNSURE, "cusolver", r"cusolver_status_not_initialized, when calling .?cusolverdncreate"),
    (UNSURE, "cudnn", r"unable to find an engine to execute this computation"),
    (CPU, "torch", r"defaultcpuallocator: (?:can't allocate memory|not enough memory)|c10 out of memory"),
    (MMAP, "torch", r"unable to mmap"),
    (HOST, "c++", r"std::bad_alloc"),
    (HOST, "system", r"cannot allocate memory"),
)

_SIZE = r"(\d[\d.]* (?:bytes|[KMGTPE]iB))"
_FIGURES: Final = (
    # (field, pattern); the number is bytes, or a size in words. What torch says of a device, in all its wordings.
    ("requested_bytes", rf"Tried to allocate {_SIZE}"),
    ("requested_bytes", rf"Requested(?: size)?\s*: {_SIZE}"),
    ("requested_bytes", r"you tried to (?:allocate|mmap) (\d+) bytes"),
    ("requested_bytes", r"unable to mmap (\d+) bytes"),
    ("requested_bytes", rf"Unable to allocate {_SIZE} for an array"),
    ("requested_bytes", r"Out of memory allocating ([\d,]+) bytes"),
    ("requested_bytes", r"NRT allocation failed for size (\d+)"),
    ("free_bytes", rf"of which {_SIZE} is free|; {_SIZE} free"),
    ("free_bytes", rf"Free \(according to CUDA\): {_SIZE}"),
    ("total_bytes", rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity"),
    ("total_bytes", rf"Device limit\s*: {_SIZE}"),
    ("limit_bytes", rf"{_SIZE} allowed"),
    ("allocated_bytes", rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated"),
    ("allocated_bytes", rf"Currently allocated\s*: {_SIZE}"),
    ("unallocated_bytes", rf"{_SIZE} is reserved by PyTorch but unallocated"),
    ("reserved_bytes", rf"{_SIZE} reserved in total by PyTorch"),
    ("device", r"GPU (\d+)[ ;]|Allocation on device (\d+)"),
    ("errno", r"(?:Error code |: (?:Cannot allocate memory|No space left on device) \()(\d+)\b"),
)
_HOLDERS: Final = re.compile(rf"Process (\d+) has {_SIZE} memory in use")
_FILE: Final = re.compile(r"<([^<>\n]{1,160})>")
_UNITS: Final = {"bytes": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "PiB": 50, "EiB": 60}


def recognise(exc: BaseException) -> Memory | None:
    """Name the memory failure that an exception, one of its causes or a member of a group stands for."""
    for one in _chain(exc):
        found = _of_one(one)
        if found is not None:
            return found
    return None


def text_of(exc: BaseException) -> str:
    """Give what the exception says, whatever its `__str__` does."""
    try:
        text = str(exc)
    except Exception as broken:  # noqa: BLE001 - __str__ of a foreign exception may raise anything
        return f"(no text: __str__ raised {type(broken).__name__})"
    return text if len(text) <= _HEAD + _TAIL else text[:_HEAD] + "\n" + text[-_TAIL:]


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """Walk from an exception to what caused it and, in a group, to its members; each once, a few in all."""
    waiting, seen = [exc], set[int]()
    while waiting and len(seen) < _CAUSES:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(one.exceptions)
        cause = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        if cause is not None:
            waiting.append(cause)


def _of_one(exc: BaseException) -> Memory | None:
    found = _kind_and_source(exc)
    if found is None:
        return None
    kind, source = found
    text = text_of(exc)
    if source == "driver" and _pins(exc.__traceback__):
        kind, source = PINNED, "cudaHostAlloc"
    return Memory(kind, source, text, {"source": source, **figures(text, kind)})


def _kind_and_source(exc: BaseException) -> tuple[str, str] | None:
    names = [f"{base.__module__}.{base.__qualname__}" for base in type(exc).__mro__]
    if any(name.startswith("cupy") and name.endswith("OutOfMemoryError") for name in names):
        return GPU, "cupy"
    if isinstance(exc, MemoryError):
        return HOST, "numpy" if names[0].startswith("numpy") else "python"
    is_torch = any(name.startswith("torch.") and name.endswith("OutOfMemoryError") for name in names)
    if not is_torch and not isinstance(exc, (RuntimeError, OSError)):
        return None
    if isinstance(exc, OSError) and exc.errno == errno.ENOSPC and _of_shm(exc):
        return SHM, "system"
    text = text_of(exc).lower()
    by_text = next(((kind, source) for kind, source, pattern in _ROWS if re.search(pattern, text)), None)
    return by_text or ((GPU, "torch") if is_torch else None)


def _of_shm(exc: OSError) -> bool:
    """Whether shared memory is what is full. A copy names two files, the second is the one it wrote.

    A `write` names none; then it is where shared memory has no free page now.
    """
    names = [name for name in (exc.filename, exc.filename2) if name is not None]
    if names:
        return _in_shm(names[-1])
    try:
        return os.statvfs(_SHM_FOLDER).f_bavail == 0
    except OSError:
        return False


def _in_shm(name: object) -> bool:
    """Whether a file lies in shared memory; multiprocessing names its segments without the folder."""
    return isinstance(name, str) and name.startswith((_SHM_FOLDER, "/psm_", "/torch_"))


def _pins(tb: TracebackType | None) -> bool:
    """Whether the line that raised pins memory. cudaHostAlloc fails with the very text of a full card."""
    if tb is None:
        return False
    while tb.tb_next is not None:
        tb = tb.tb_next
    code = tb.tb_frame.f_code
    if code.co_filename.endswith("_utils/pin_memory.py"):  # the thread of torch's DataLoader
        return True
    import dis

    line = 0
    for step in dis.get_instructions(code):
        line = step.starts_line or line
        # 3.11 has the names of keyword arguments in an instruction of their own, whose value `dis` does not look up.
        said = code.co_consts[step.arg or 0] if step.opname == "KW_NAMES" else step.argval
        if line == tb.tb_lineno and "pin_memory" in (said if isinstance(said, tuple) else (said,)):
            return True
    return False


def figures(text: str, kind: str = "") -> dict[str, Scalar]:
    """Read the figures in a text. Sizes in words are rounded to two digits there, and `figures` says so."""
    found: dict[str, Scalar] = {}
    for name, pattern in _FIGURES:
        match = re.search(pattern, text)
        if match is not None and name not in found:
            said = next(group for group in match.groups() if group is not None)
            found[name], exact = _number(said)
            if not exact:
                found["figures"] = "rounded"
    holders = ", ".join(f"{pid}: {_number(size)[0]}" for pid, size in _HOLDERS.findall(text)[:8])
    if holders:
        found["holders"] = holders
    file = _FILE.search(text) if kind in (MMAP, SHM) else None
    if file is not None:
        found["file"] = file[1]
    return found


def _number(said: str) -> tuple[int, bool]:
    """Give a number of bytes (or any other), and whether it is exact."""
    number, _, unit = said.replace(",", "").partition(" ")
    shift = _UNITS.get(unit, 0)
    return (int(number), True) if not shift else (round(float(number) * (1 << shift)), False)


def fits(exact_bytes: int, said: object) -> bool:
    """Whether a size in words, as `figures` gave it, can be this exact one. torch rounds to two digits of the unit."""
    if not isinstance(said, int):
        return False
    unit = next((1 << shift for shift in (30, 20, 10) if exact_bytes > 1 << shift), 1)
    return abs(exact_bytes - said) <= unit // 100
