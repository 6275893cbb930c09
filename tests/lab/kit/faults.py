"""Faults: ways in which a program brings its own end about. Parts of the command lines that `loads` runs.

python loads.py NAME key=value ... [+ NAME key=value ...]      (when=PATH waits first, as with every load)
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from inspect import isfunction
from pathlib import Path
from typing import Final, NoReturn

MIB: Final = 1 << 20
_REFUSED_BY_EVERY_KERNEL: Final = 1 << 45  # bytes: 32 TiB, more than overcommit_memory=0 ever grants
_PIECE: Final = 64  # MiB
_UNDEFINED: Final = {"x86_64": b"\x0f\x0b", "aarch64": b"\x00\x00\x00\x00"}


def abort() -> None:
    """Die of SIGABRT, as `std::terminate` and failed assertions of C++ do."""
    os.abort()


def illegal() -> None:
    """Die of SIGILL: run the instruction that every processor of this kind refuses, as after a wrong build."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(_UNDEFINED[platform.machine()])
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()


def overflow() -> None:
    """Die of SIGSEGV by recursion: each round goes through C, which Python's own limit no longer stops."""
    sys.setrecursionlimit(1 << 30)
    _deeper()


def _deeper(*_: object) -> None:
    list(map(_deeper, (None,)))


def burn(seconds: int = 1) -> None:
    """Die of SIGXCPU after so many seconds of processor time."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 60))
    while True:
        pass


def write_past(path: str) -> None:
    """Die of SIGXFSZ: write more to a file than the limit allows. Python itself ignores that signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))
    fill(path, size=2)


def gulp(size: int, score: int = 0) -> None:
    """Take `size` MiB of anonymous memory as fast as the kernel gives it, and hold it.

    In pieces, because a single one larger than the node would be refused. A `score` is set before, as the kubelet does:
    1000 for a pod of the class BestEffort.
    """
    if score:  # lowering it, where a container runs with more than 0, takes a capability
        Path("/proc/self/oom_score_adj").write_text(str(score))
    held = [b"\1" * (min(_PIECE, size - taken) * MIB) for taken in range(0, size, _PIECE)]
    time.sleep(3600 if held else 0)


def crowd_out(percent: float) -> None:
    """Leave so many percent of the node's memory available, as the first victim that any OOM killer would choose."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kib = {words[0]: int(words[1]) for words in lines}
    gulp(size=int(kib["MemAvailable:"] - kib["MemTotal:"] * percent / 100) >> 10, score=1000)


def fill(path: str, size: int = 1 << 20) -> None:
    """Write `size` MiB to a file, or what there is room for: then OSError, which nobody catches."""
    with Path(path).open("wb", buffering=0) as file:
        file.writelines(b"\1" * MIB for _ in range(size))


def stage_shm(size: int) -> None:
    """Copy a file of `size` MiB to /dev/shm, as servers stage weights: OSError where it is too small."""
    with tempfile.NamedTemporaryFile() as weights:
        weights.truncate(size * MIB)
        shutil.copyfile(weights.name, "/dev/shm/weights")


def share(size: int) -> None:
    """Put `size` MiB into shared memory of multiprocessing, which is sparse: SIGBUS where /dev/shm is too small."""
    from multiprocessing.shared_memory import ShareableList

    ShareableList([b"\1" * (8 * MIB)] * (size // 8))


def truncated(path: str) -> None:
    """Read mapped weights that somebody cuts off meanwhile, as by a download in the same place: SIGBUS."""
    with Path(path).open("w+b") as file:
        file.truncate(MIB)
        weights = mmap.mmap(file.fileno(), MIB)
        os.truncate(path, 0)
        sys.stdout.write(str(weights[0]))


def refuse() -> None:
    """Ask for more address space than the process may have: MemoryError, which nobody catches."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * mmap.PAGESIZE + 64 * MIB
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    bytearray(256 * MIB)


def refuse_torch() -> None:
    """Ask torch's CPU allocator for more than the kernel grants: RuntimeError of DefaultCPUAllocator."""
    import torch

    torch.empty(_REFUSED_BY_EVERY_KERNEL, dtype=torch.uint8)


def share_torch(size: int) -> None:
    """Move a tensor to shared memory, as a DataLoader worker does: RuntimeError where /dev/shm is too small."""
    import torch

    torch.zeros(size * MIB, dtype=torch.uint8).share_memory_()


def cuda_oom(size: int) -> None:
    """Ask a card for more than it has: torch.OutOfMemoryError, which nobody catches."""
    import torch

    torch.empty(size * MIB, dtype=torch.uint8, device="cuda")


def cuda_oom_survived(size: int, when: str, code: int) -> None:
    """The same, caught, as servers do that retry with a smaller batch; and much later exit for another reason."""
    import torch

    try:
        cuda_oom(size)
    except torch.OutOfMemoryError:
        sys.stderr.write("retrying with a smaller batch\n")
    while not Path(when).exists():
        time.sleep(0.02)
    sys.exit(code)


def cuda_oom_given_up(size: int, code: int) -> None:
    """The same, caught, and the process ended on the spot, as engines do that tell their front end first."""
    import torch

    try:
        cuda_oom(size)
    except torch.OutOfMemoryError:
        os._exit(code)


def use_card(when: str) -> None:
    """Hold memory of a card; at the cue call it until a call fails: RuntimeError of CUDA, which nobody catches."""
    import torch

    held = torch.ones(MIB, dtype=torch.uint8, device="cuda")
    sys.stdout.write("on the card\n")
    sys.stdout.flush()
    while not Path(when).exists():
        time.sleep(0.02)
    while True:
        held.clone()
        torch.cuda.synchronize()
        time.sleep(0.02)


def no_threads() -> None:
    """Start a thread where no more processes are allowed: RuntimeError, which nobody catches."""
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    threading.Thread(target=time.sleep).start()


def thread_exits(code: int) -> None:
    """`sys.exit` in a thread ends that thread alone; the process then ends well."""
    thread = threading.Thread(target=sys.exit, args=(code,))
    thread.start()
    thread.join()


def become() -> None:
    """Execute another program, which knows nothing of Python, in the same process."""
    os.execvp("sleep", ["sleep", "3600"])


def forkserver(when: str) -> None:
    """Keep a worker of multiprocessing's fork server, which aborts at the cue, and live on."""
    worker = multiprocessing.get_context("forkserver").Process(target=_abort_at, args=(when,))
    worker.start()
    worker.join()
    time.sleep(3600)


def _abort_at(when: str) -> None:
    import guard

    guard.beat("work")
    while not Path(when).exists():
        time.sleep(0.02)
    os.abort()


def front(when: str, rate: int = 100) -> None:
    """Two workers, one of which eats memory at the cue; when one ends so does all, with exit code 1, as vLLM does."""
    loads = str(Path(__file__).with_name("loads.py"))
    starts = (["beat", "+", "grow", f"rate={rate}", f"when={when}"], ["beat"])
    workers = [subprocess.Popen([sys.executable, loads, *words]) for words in starts]
    while all(worker.poll() is None for worker in workers):
        time.sleep(0.02)
    sys.stderr.write("a worker died, shutting down\n")
    for worker in workers:
        worker.kill()
        worker.wait()
    sys.exit(1)


def obey(code: int) -> None:
    """Exit in order with `code` when SIGTERM comes, as servers do that finish their requests first."""

    def stop(_number: int, _frame: object) -> NoReturn:
        sys.exit(code)

    signal.signal(signal.SIGTERM, stop)
    time.sleep(3600)


def watchdog(seconds: float = 0.2) -> None:
    """A watchdog of the server's own: when the main thread no longer beats, it aborts the process."""
    beaten = threading.Event()

    def watch() -> None:
        while beaten.wait(seconds):
            beaten.clear()
        os.abort()

    beaten.set()
    threading.Thread(target=watch, daemon=True).start()
    lock = threading.Lock()
    with lock, lock:  # the main thread hangs from here on
        pass


FAULTS: Final[Mapping[str, Callable[..., None]]] = {
    name: fault for name, fault in tuple(globals().items()) if isfunction(fault) and not name.startswith("_")
}
