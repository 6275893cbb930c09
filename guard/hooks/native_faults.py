"""Owner of the trace that a process leaves when a signal of its own making kills it, in a file beside the black box.

SIGBUS on a full /dev/shm, SIGSEGV, SIGABRT (`std::terminate` after a `std::bad_alloc` that nobody caught), SIGFPE and
SIGILL run no Python. The interpreter's `faulthandler` does: it writes which Python lines each thread was in, then gives
the signal on to the handler that was there before, so the wait status stays what it was.

    * There is one faulthandler a process. A server that has switched it on keeps it, whether it did so before us
      (then we do nothing) or does so later (then ours is gone). `PYTHONFAULTHANDLER` and `-X dev` count as well.
    * A trace is no death: runtimes that take a SIGSEGV as a matter of course (a JVM, WebAssembly) leave one and go on.
    * The file is empty until then. It is named by the session; `guard.box.faults` reads it.
    * A forked child writes to a file of its own, and to none before it has a box.
"""

from __future__ import annotations

import faulthandler
import os
import weakref
from io import FileIO

from guard.hooks import set_state
from guard.switches import is_off

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.keeper import Keeper

SWITCH = "OOMGUARD_FAULTS"
NAME = "native_faults"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class _Ours:
    """Whether the faulthandler is ours. It alone holds the file object: once somebody else sets it, ours is gone."""

    __slots__ = ("_file", "installed")

    def __init__(self) -> None:
        self.installed = False
        self._file: weakref.ref[FileIO] | None = None

    @property
    def on(self) -> bool:
        """Whether it still writes to our file."""
        return self._file is not None and self._file() is not None

    def start(self, path: str) -> str:
        """Switch it on and give its state. The descriptor is closed when the faulthandler lets go of the file object.

        Raises:
            OSError: the file cannot be made.
        """
        self.stop()
        if faulthandler.is_enabled():
            return "the server has its own"
        fd = os.open(path, _FLAGS, 0o644)
        file = FileIO(fd, "w", closefd=False)  # one that owns its descriptor would warn when it is let go
        self._file = weakref.ref(file, lambda _: os.close(fd))
        faulthandler.enable(file=file, all_threads=True)
        return "installed"

    def stop(self) -> None:
        """Switch it off where it is still ours."""
        if self.on:
            faulthandler.disable()


_ours = _Ours()


def install(keeper: Keeper) -> Callable[[], None]:
    """Begin with the box that there is or will be."""
    _ours.installed = not is_off(SWITCH)
    if keeper.box is not None:
        follow(keeper.box.path)

    def undo() -> None:
        _ours.installed = False
        _ours.stop()

    return undo


def follow(box_path: str) -> None:
    """Write beside this box from now on.

    Raises:
        OSError: the file cannot be made.
    """
    if _ours.installed:
        from guard.box.prune import FAULTS_SUFFIX

        set_state(NAME, _ours.start(box_path.rpartition(".")[0] + FAULTS_SUFFIX))


def forget() -> None:
    """In a forked child: the file is the parent's."""
    _ours.stop()
