"""Staying small and in memory: a sidecar must answer while the node has no memory to give.

Measured with Python 3.11, glibc 2.36 and aiohttp 3.14: an interpreter with aiohttp takes 39 of the 45 MiB that the idle
daemon takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import mimetypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # malloc.h of glibc
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE: Final = 64 << 10
_TOP: Final = 16 << 10
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # what OpenSSL asks for its defaults
_SMAPS: Final = Path("/proc/self/smaps")
_MADV_DONTNEED: Final = 4  # sys/mman.h; of a private mapping of a file: forget the pages, read them anew when used
_MCL_CURRENT: Final = 1
_MCL_ONFAULT: Final = 4


def keep_small() -> None:
    """Use one malloc arena, and give what was large or on top of it back once freed (glibc alone has the switches).

    Left to itself glibc raises both thresholds at the first large block that is freed, here by zlib, for good: half a
    MiB stayed on top of the heap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, _LARGE)
        mallopt(_M_TOP_PAD, _TOP)


@contextlib.contextmanager
def without_system_tables() -> Iterator[None]:
    """Import aiohttp in this block, and as it is imported it loads neither certificates nor /etc/mime.types.

    They take 2 MiB and 0.3 MiB. The sidecar serves no files; it probes its own pod and verifies nobody, as the kubelet
    does. Who verifies makes a context of its own.
    """
    mimetypes.knownfiles.clear()
    before = {name: os.environ.get(name) for name in _CERTIFICATES}
    os.environ.update(dict.fromkeys(_CERTIFICATES, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def give_back() -> None:
    """Give back what start-up alone used: freed memory (glibc alone has the call), and code that ran once.

    Code is taken from the page cache again when it runs, as at first. It is some 3 MiB, most of it of libcrypto, which
    aiohttp loads, and the dynamic loader's and interpreter's own beginnings.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    trim = getattr(libc, "malloc_trim", None)
    if trim is not None:
        trim(0)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, length in _unchanged_code():
        libc.madvise(start, length, _MADV_DONTNEED)  # EINVAL where it is locked: then it stays


def _unchanged_code() -> Iterator[tuple[int, int]]:
    """Address and length of each mapping of a file's code in which no page is a private copy; without /proc none."""
    with contextlib.suppress(OSError), _SMAPS.open(encoding="utf-8", errors="replace") as lines:
        code: tuple[int, int] | None = None
        for line in lines:
            head, *rest = line.split(maxsplit=5)
            if not head.endswith(":"):
                start, _, end = head.partition("-")
                executable = rest[0] == "r-xp" and rest[3] != "0"  # an inode: [vdso] has none
                code = (int(start, 16), int(end, 16) - int(start, 16)) if executable else None
            elif head == "Anonymous:" and code is not None and rest[0] == "0":
                yield code


def open_many_files() -> None:
    """Raise the limit of open files as far as it may be: a client hands over some 40 to 70 descriptors.

    Soft limits are 1024 for the sake of select(2), which cannot take more and which nothing here calls.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def stay_in_memory() -> bool:
    """Lock what is mapped and touched; tell whether it was allowed (CAP_IPC_LOCK, or memlock above our size)."""
    mlockall = getattr(ctypes.CDLL(None, use_errno=True), "mlockall", None)
    return mlockall is not None and mlockall(_MCL_CURRENT | _MCL_ONFAULT) == 0
