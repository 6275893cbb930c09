"""Loads: small programs of the standard library that press on the kernel in one known way each.

    python loads.py NAME key=value ... [+ NAME key=value ...]

Parts joined by `+` run in one process: the last one in the main thread, and the process ends with it. `when=PATH`
makes a load wait until that file exists. Sizes are in MiB, times in seconds. Use `command()` to build the command line.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn, get_type_hints

MIB: Final = 1 << 20
PAGE: Final = mmap.PAGESIZE


def command(*parts: str, python: str = sys.executable) -> list[str]:
    """Return the command line for parts like "grow rate=50" joined by `+`."""
    words = [word for part in parts for word in ("+", *part.split())]
    return [python, __file__, *words[1:]]


def sleep(seconds: float = 3600) -> None:
    """Do nothing for so long."""
    time.sleep(seconds)


def leave(code: int = 0, when: str = "") -> None:
    """Exit in the orderly way with `code`."""
    _wait_for(when)
    sys.exit(code)


def fail(when: str = "") -> None:
    """End by an uncaught exception."""
    _wait_for(when)
    raise ValueError("a load that fails")


def segfault(when: str = "") -> None:
    """Die of SIGSEGV by reading address zero."""
    import ctypes

    _wait_for(when)
    ctypes.string_at(0)


def grow(rate: float = 50, upto: float = float("inf"), when: str = "") -> None:
    """Touch private anonymous memory, `rate` MiB a second, up to `upto` MiB, then hold it.

    `mmap(-1, n)` of Python is MAP_SHARED and would be counted as shmem; private pages are what a model server has.
    """
    _wait_for(when)
    held: list[mmap.mmap] = []
    started = time.monotonic()
    while len(held) < upto:
        chunk = mmap.mmap(-1, MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for offset in range(0, MIB, PAGE):
            chunk[offset] = 1
        held.append(chunk)
        time.sleep(max(0.0, started + len(held) / rate - time.monotonic()))
    sleep()


def cache(path: str, size: int = 100) -> None:
    """Write a file of `size` MiB and read it again and again: page cache that the kernel can drop at no cost."""
    make_file(path, size)
    while True:
        with Path(path).open("rb", buffering=0) as file:
            while file.read(MIB):
                pass


def thrash(path: str, threads: int = 2, size: int = 0) -> None:
    """Touch the pages of a mapped file at random from `threads` threads: weights larger than the limit.

    `size` makes the file first. It is then dropped from the page cache, because cached pages stay charged to whoever
    touched them first.
    """
    if size:
        make_file(path, size)
    with Path(path).open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        weights = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    for seed in range(threads - 1):
        threading.Thread(target=_touch, args=(weights, seed), daemon=True).start()
    _touch(weights, threads)


def _touch(weights: mmap.mmap, seed: int) -> NoReturn:
    """Runs of 1 MiB at random places: pages are used more than once, so they are activated and then missed (PSI)."""
    places = random.Random(seed)
    while True:
        start = places.randrange(0, max(1, len(weights) - MIB))
        for offset in range(start, min(start + MIB, len(weights)), PAGE):
            weights[offset]


def beat(every: float = 0.05) -> None:
    """Report progress to the guard, if one was installed, as a serving loop does; says when it begins."""
    import guard

    sys.stdout.write("beating\n")
    sys.stdout.flush()
    while True:
        guard.beat("work")
        time.sleep(every)


def child(rate: float = 200, beats: int = 1, when: str = "") -> None:
    """Keep a worker that eats memory, and live on whatever happens to it; says when it ended.

    With `beats=0` the worker does nothing by which its guard would notice that it is a worker.
    """
    eater = subprocess.Popen(command(*(["beat"] if beats else []), f"grow rate={rate} when={when}"))
    sys.stdout.write(f"child {eater.pid} ended with {eater.wait()}\n")
    sys.stdout.flush()
    sleep()


def serve(port: int, delay: float = 0, term: str = "") -> None:
    """Answer HTTP on loopback from one loop, like a server with one event loop. GET /hang makes that loop deadlock.

    `term` says what SIGTERM does, while it serves or hangs: nothing (`ignore`), or an exit with that code.
    """
    if term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN if term == "ignore" else lambda *_: sys.exit(int(term)))
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                request = connection.recv(4096)
                if request.startswith(b"GET /hang "):
                    _deadlock()
                time.sleep(delay)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n")


def _deadlock() -> None:
    """Wait for a lock that this thread holds already."""
    lock = threading.Lock()
    with lock, lock:
        pass


def _wait_for(path: str) -> None:
    while path and not Path(path).exists():
        time.sleep(0.02)


def make_file(path: str, size: int) -> None:
    """Write `size` MiB that no file system can compress or share, and bring them to the disk."""
    with Path(path).open("wb", buffering=0) as file:
        file.writelines(os.urandom(MIB) for _ in range(size))
        os.fsync(file.fileno())


LOADS: Final[Mapping[str, Callable[..., None]]] = {
    load.__name__: load for load in (sleep, leave, fail, segfault, grow, cache, thrash, beat, child, serve)
}


def main(arguments: Sequence[str]) -> None:
    """Run the parts. A wrong name or key is a plain error of Python: these programs are for tests."""
    *others, last = [part.split() for part in " ".join(arguments).split(" + ")]
    for part in others:
        threading.Thread(target=_run, args=(part,), daemon=True).start()
    _run(last)


def _run(words: Sequence[str]) -> None:
    load = LOADS.get(words[0]) or _fault(words[0])
    kinds = get_type_hints(load)
    given = dict(word.split("=", 1) for word in words[1:])
    if "when" not in kinds:
        _wait_for(given.pop("when", ""))
    load(**{key: kinds[key](value) for key, value in given.items()})


def _fault(name: str) -> Callable[..., None]:
    """Look a fault up, only then: what it imports costs seconds in the emulated machine."""
    import faults  # found beside this file, which is run as a script

    found: Callable[..., None] = faults.FAULTS[name]
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
