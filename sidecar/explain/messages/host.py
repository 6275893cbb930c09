"""Allocations of host memory that failed, shared memory that was full, and pinned memory that reads like a GPU's."""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.patterns import Pattern
from sidecar.explain.sizes import ONE, SIZE, array_bytes, bytes_of, size
from sidecar.explain.values import Field, Role
from sidecar.verdict.values import Confidence, EndClass

_HOST: Final = EndClass.HOST_ALLOCATION_FAILURE
_SHM: Final = EndClass.SHM_EXHAUSTED
_SHM_PATH: Final = "/dev/shm"  # noqa: S108 - a name to look for, nothing is opened
_RESERVED: Final = re.compile(
    rf"\b(?:size|allocate|alloc|reserve|allocation of)(?: of size)?:? (?:{SIZE}|(\d{{1,20}}))"
)
_DEVICE_ALLOC: Final = re.compile(r"bad_alloc.{0,80}(?:CUDA|cuda|hip)")
"""Thrust and RMM say std::bad_alloc for the memory of the card."""
_ERRNO: Final = re.compile(
    r"Error code (\d{1,4})|\[Errno (\d{1,4})\]|== 0\. (\d{1,4}) vs 0|Cannot allocate memory \((\d{1,4})\)"
)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _errno(text: str) -> int | None:
    found = _ERRNO.search(text)
    return None if found is None else int(next(part for part in found.groups() if part is not None))


def _cpu_allocator(text: str, found: re.Match[str]) -> dict[str, Field]:
    return {
        "framework": "torch",
        "device": "cpu",
        "requested_bytes": _number(found[1]),
        "errno": _errno(text),
        "misleading_text": _misleading(text),
    }


def _numpy(_text: str, found: re.Match[str]) -> dict[str, Field]:
    exact = array_bytes(found[3], found[4])
    printed = bytes_of(found[1], found[2]) if found[1] else None
    shape: list[Field] = [int(one) for one in re.findall(r"\d{1,18}", found[3])]
    return {
        "framework": "numpy",
        "device": "cpu",
        "shape": shape,
        "dtype": found[4],
        "requested_bytes": printed if exact is None else exact,
    }


def _sized(text: str, _found: re.Match[str]) -> dict[str, Field]:
    """Read the size asked for, with a unit or in plain bytes."""
    found = _RESERVED.search(text)
    requested = None if found is None else int(found[3]) if found[3] else bytes_of(found[1], found[2])
    return {"requested_bytes": requested, "errno": _errno(text), "device": "cpu"}


def _pinned(text: str, found: re.Match[str]) -> dict[str, Field]:
    fields = _sized(text, found)
    exact = re.search(r"(\d{1,20}) bytes on host|pinned host memory of size: (\d{1,20})", text)
    if exact:
        fields["requested_bytes"] = int(exact[1] or exact[2])
    framework = "tensorflow" if "device_host_allocator" in text or "cuda_driver" in text else None
    return {**fields, "subtype": "pinned_host", "framework": framework, "misleading_text": _misleading(text)}


def _misleading(text: str) -> str | None:
    found = re.search(r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CUDA out of memory", text)
    return None if found is None else found[0]


def _ollama(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {"framework": "ollama", "requested_bytes": size(found[1]), "available_bytes": size(found[2])}


def _too_large(_text: str, found: re.Match[str]) -> dict[str, Field]:
    available = _number(found[3]) if found[3] else size(found[2])
    return {"framework": "ollama", "requested_bytes": size(found[1]), "available_bytes": available}


def _jvm(text: str, _found: re.Match[str]) -> dict[str, Field]:
    asked = re.search(r"failed to (?:map|allocate) (\d{1,20}) bytes", text)
    return {"framework": "java", "device": "cpu", "requested_bytes": None if asked is None else int(asked[1])}


def _stored(text: str) -> dict[str, Field]:
    asked = re.search(r"Object size is (\d{1,20}) bytes", text)
    return {"requested_bytes": None if asked is None else int(asked[1])}


def _mmap(text: str, found: re.Match[str]) -> dict[str, Field]:
    shared = found[2].startswith(("/torch_", _SHM_PATH, "/psm_", "/__KMP"))
    number = _number(found[3])
    return {
        "requested_bytes": int(found[1]),
        "path": found[2],
        "errno": number if number is not None else _errno(text),
        "end_class": _SHM.value if shared else _HOST.value,
    }


def _row(subject: str, words: tuple[str, ...], start: str, summary: str, **more: object) -> Pattern:
    given: dict[str, object] = {"end_class": _HOST, "read": _sized, **more}
    return Pattern(subject=subject, words=words, start=re.compile(start), summary=summary, **given)  # type: ignore[arg-type]


PATTERNS: Final = (
    _row(
        "pinned",
        (
            "pinned",
            "pin memory thread",
            "on host",
            "hostalloc",
            "mallochost",
            "hostmalloc",
            "hostregister",
        ),
        r"could not allocate pinned host memory|Caught \w{1,40} in pin memory thread"
        r"|failed to alloc(?:ate)? .{0,60}?(?:bytes on host"
        r"|of pinned memory|pinned)"
        r"|(?:cudaHostAlloc|cudaMallocHost|hipHostMalloc|cudaHostRegister|cuMemHostAlloc)\b.{0,80}?(?:failed"
        r"|out of memory)",
        "pinned host memory could not be had; the text reads like a GPU's, the card is not what was full",
        read=_pinned,
        confidence=Confidence.MEDIUM,
        after=1,
        again=False,
    ),
    _row(
        "cpu_allocator",
        ("defaultcpuallocator",),
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (\d{1,20}) bytes",
        "torch could not allocate host memory",
        read=_cpu_allocator,
        after=1,
    ),
    _row(
        "cpu_allocator",
        ("posix_memalign", "alloc_cpu", "cpuallocator"),
        r"posix_memalign\(.{0,80}?\) == 0\. \d+ vs 0(?:.{0,200}?tried to allocate (\d{1,20}) bytes)?",
        "torch could not allocate host memory",
        read=_cpu_allocator,
    ),
    _row(
        "numpy",
        ("unable to allocate",),
        rf"Unable to allocate (?:{SIZE} for an )?array with shape (\([\d, ]{{1,200}}\)) and data type <?(\w{{1,20}})",
        "numpy could not allocate an array",
        read=_numpy,
    ),
    _row(
        "shm",
        ("shared memory", _SHM_PATH, "/torch_", "dataloader", "interprocess::bad_alloc", "psm_"),
        r"unable to (?:write to|resize|allocate|open|create) (?:file|shared memory).{0,200}?(?:No space left"
        r"|No such file|shm)"
        r"|/dev/shm\S{0,200}+.{0,80}?(?:No space left|Bus error|cannot allocate|failed)"
        r"|No space left on device.{0,80}?/dev/shm"
        r"|[Ee]rror while creating shared memory segment|workers are out of shared memory|insufficient shared memory"
        r"|boost::interprocess::bad_alloc|No space left on device: '?/?(?:psm_|dev/shm)"
        r"|increase the shared memory pool size"
        r"|unable to allocate shared memory|unable to open shared memory object"
        r"|is killed by signal: Bus error|shared memory.{0,40}No space left",
        "shared memory (/dev/shm) was full",
        end_class=_SHM,
        after=2,
        again=False,
    ),
    _row(
        "mmap",
        ("unable to mmap",),
        r"unable to mmap (\d{1,20}) bytes from file <([^>]{0,1024})>: [^()\n]{1,80}(?:\((\d{1,4})\))?",
        "a file could not be mapped into memory",
        read=_mmap,
    ),
    _row(
        "ollama",
        ("requires more system memory",),
        rf"requires more system memory \(({ONE})\) than is available \(({ONE})\)",
        "the model needs more host memory than is free; the server refused to load it",
        read=_ollama,
    ),
    _row(
        "ollama",
        ("too large for system",),
        rf"model request too large for system\"? requested=\"({ONE})\" available=(?:\"({ONE})\"|(\d{{1,20}}))",
        "the model needs more host memory than is free; the server refused to load it",
        read=_too_large,
    ),
    _row(
        "torch_old",
        ("torch: not enough memory",),
        rf"Torch: not enough memory: you tried to allocate ({ONE})",
        "torch could not allocate host memory",
        read=lambda _text, found: {"framework": "torch", "device": "cpu", "requested_bytes": size(found[1])},
    ),
    _row(
        "jvm",
        ("insufficient memory for the java", "native memory allocation"),
        r"insufficient memory for the Java Runtime Environment|Native memory allocation \(\w{1,12}\) failed to"
        r" (?:map|allocate) (\d{1,20}) bytes",
        "the Java runtime could not get memory from the kernel",
        read=_jvm,
        after=2,
        again=False,
    ),
    _row(
        "host_backend",
        ("cpu buffer", "aligned_malloc", "outofhostmemory", "out_of_host_memory", "ggml_backend_cpu_buffer"),
        r"failed to allocate CPU\w{0,20} buffer|ggml_aligned_malloc: insufficient memory"
        r"|ggml_backend_cpu_buffer\w{1,60}: failed to allocate buffer|ErrorOutOfHostMemory"
        r"|OUT_OF_HOST_MEMORY",
        "the inference engine could not allocate host memory",
        read=lambda text, found: {**_sized(text, found), "framework": "ggml" if "ggml" in text else None},
        after=2,
    ),
    _row(
        "bad_alloc",
        ("bad_alloc", "memory allocation of", "out of memory", "cannot allocate memory", "java.lang.outofmemory"),
        r"std::bad_alloc|memory allocation of (\d{1,20}) bytes failed|fatal error: (?:runtime: )?(?:out of"
        r"|cannot allocate) memory"
        r"|JavaScript heap out of memory|java\.lang\.OutOfMemoryError: \w[\w ]{0,40}",
        "an allocation of host memory failed",
        unless=_DEVICE_ALLOC,
    ),
    _row(
        "errno",
        ("cannot allocate memory",),
        r"[Cc]annot allocate memory",
        "the kernel refused an allocation (ENOMEM)",
        confidence=Confidence.MEDIUM,
    ),
    _row(
        "ray_store",
        ("objectstorefullerror",),
        r"\bObjectStoreFullError:",
        "Ray's object store was full: it holds shared memory, and is sized at the start",
        read=lambda text, _found: {**_stored(text), "framework": "ray", "subtype": "object_store"},
    ),
    _row(
        "memory_error",
        ("memoryerror",),
        r"(?:^|[\s.(])MemoryError(?::|$|\()",
        "Python raised MemoryError",
        unless=_DEVICE_ALLOC,
    ),
    _row(
        "poisoned",
        ("memory failure: ",),
        r"Memory failure: 0x[0-9a-f]{1,16}: (?:Killing|Sending SIGBUS to) (.{1,64}?):(\d{1,10}) due to hardware",
        "the machine's memory is broken there: the kernel stopped the process that used it",
        end_class=EndClass.CRASH_SIGNAL,
        source="kernel log",
        read=lambda _text, found: {"comm": found[1], "victim_pid": int(found[2]), "pids": [int(found[2])]},
    ),
    _row(
        "sigbus",
        ("bus error", "sigbus", "signal 7", "signal: bus"),
        r"\bBus error\b|\bSIGBUS\b|\bsignal(?:ed)?(?: to shutdown with signal)? 7\b",
        "a process got SIGBUS: /dev/shm or a mapped file could not be filled",
        end_class=_SHM,
        read=lambda text, _found: _sigbus(text),
        after=4,
        again=False,
    ),
    Pattern(
        subject="ray_guess",
        end_class=EndClass.UNKNOWN,
        role=Role.CONTEXT,
        words=("potential root causes",),
        start=re.compile(r"There are some potential root causes\."),
        summary="Ray lists what may have happened, it does not know",
        read=lambda text, _found: {"misleading_text": _guess(text), **_ray_end(text)},
        missing=("the worker's exit status, or an OOM kill at that moment (kernel log, memory.events)",),
    ),
)


def _guess(text: str) -> str | None:
    found = re.search(r"killed by SIGKILL by OOM killer", text)
    return None if found is None else found[0]


def _ray_end(text: str) -> dict[str, Field]:
    """A line that reports a dead worker, not only the list of guesses, is an end."""
    if re.search(r"Worker exit type: SYSTEM_ERROR|[Ww]orker died or was killed", text) is None:
        return {}
    pid = re.search(r"\bWorker PID: (\d{1,10})|\bpid=(\d{1,10})", text)
    return {
        "framework": "ray",
        "role": Role.END.value,
        "confidence": Confidence.LOW.value,
        "summary": "a Ray worker died; Ray does not know of what",
        "worker_pid": None if pid is None else int(pid[1] or pid[2]),
    }


def _sigbus(text: str) -> dict[str, Field]:
    """A bus error is a full /dev/shm most often; an address that spells a name in it proves it."""
    names = [spelled for one in re.findall(r"0x([0-9a-f]{12,16})\b", text) if (spelled := _spelled(one))]
    pid = re.search(r"\bpid[= ](\d{1,10})", text)
    sure = bool(names) or re.search(rf"{_SHM_PATH}|shared memory|\bshm\b|nccl", text, re.IGNORECASE) is not None
    return {
        "signal": "SIGBUS",
        "signal_number": 7,
        "pid": None if pid is None else int(pid[1]),
        "hint": f"an address spells {names[0]!r}" if names else None,
        "confidence": (Confidence.HIGH if sure else Confidence.MEDIUM).value,
    }


def _spelled(digits: str) -> str | None:
    """Read an address as text: little endian, printable throughout and with a slash in it."""
    raw = bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))[::-1]
    return raw.decode("ascii") if raw.isascii() and raw.decode("ascii").isprintable() and b"/" in raw else None
