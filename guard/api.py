"""The public functions of the guard. Everything here is safe to call in any state and never raises on its own account.

Only misuse raises: a wrong number of arguments, as with any function. A missing sidecar, a full or read-only shared
directory, a failing hook: the call does nothing and `status()` says why.
"""

from __future__ import annotations

import os

from guard.admission import Admission, requests
from guard.callbacks import check_callback, check_cooldown
from guard.fence import fence, swallowed, troubles
from guard.keeper import keeper, switched_off

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import TypeVar, overload

    from guard.box.writer import OperationSlot
    from guard.condition import Status
    from guard.cuda.limits import CudaMemory
    from guard.link.protocol import Pressure

    F = TypeVar("F", bound=Callable[[Pressure], object])

_LEVELS = ("warning", "critical")


class Handle:
    """What `install` gives back. `active` is false where the off switch is set or the guard was uninstalled."""

    __slots__ = ("_undo",)

    def __init__(self, undo: list[tuple[str, Callable[[], None]]]) -> None:
        self._undo = undo

    @property
    def active(self) -> bool:
        """Whether this handle still has hooks in place."""
        return _current is self

    def uninstall(self) -> None:
        """Take every hook out again, last one first. Hooks that others put on top stay and keep working."""
        global _current  # noqa: PLW0603 - one installation a process
        with keeper.lock:
            if _current is not self:
                return
            _current = None
            for name, undo in reversed(self._undo):
                with fence(name):
                    undo()
            with fence("uninstall"):
                keeper.disarm()


_current: Handle | None = None
_off = Handle([])


def install(*, note_sigterm: bool = False) -> Handle:
    """Put the hooks in place, open the black box and look for the sidecar; once a process, later calls change nothing.

    Args:
        note_sigterm: note SIGTERM in the black box too. Off by default since it takes a Python signal handler, which
            makes a default death by SIGTERM wait for the interpreter (see `guard.hooks.sigterm`).

    Returns:
        A handle with `uninstall()`. With OOMGUARD=off, and in a subinterpreter, one that is not active.
    """
    handle = prepare(note_sigterm=note_sigterm)
    if handle.active:
        keeper.wake()
    return handle


def prepare(*, note_sigterm: bool = False) -> Handle:
    """Install without opening anything: the first mark, failure or model library opens box and link."""
    global _current  # noqa: PLW0603 - one installation a process
    if switched_off() or _elsewhere():
        return _off
    with keeper.lock:
        if _current is None:
            undo: list[tuple[str, Callable[[], None]]] = []
            _current = Handle(undo)
            with fence("install"):
                from guard.hooks import install_all

                keeper.arm()
                install_all(keeper, undo, note_sigterm=note_sigterm)
        return _current


def _elsewhere() -> bool:
    """Whether this is a place where the guard stays out, and say so."""
    with fence("install"):
        from guard.interpreter import is_main

        if is_main():
            return False
        troubles.add("install", "it stays out of subinterpreters")
    return True


class _Marked:
    """Work in flight, as a context manager. Make one for each piece of work: one that is entered twice is one mark."""

    __slots__ = ("_at_most_seconds", "_bytes_expected", "_file", "_label", "_slot")
    _kind = ""

    def __init__(self, label: str, file: str | None, bytes_expected: int | None, at_most_seconds: float | None) -> None:
        self._label = label
        self._file = file
        self._bytes_expected = bytes_expected
        self._at_most_seconds = at_most_seconds
        self._slot: OperationSlot | None = None

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        """End the mark; an exception of the work passes."""
        slot, self._slot = self._slot, None
        if slot is not None:
            try:
                slot.finish()
            except Exception as error:
                if not swallowed(self._kind, error):
                    raise

    def _open(self) -> None:
        if self._slot is not None:
            return
        self._slot = keeper.begin(
            self._kind,
            self._label,
            file=self._file,
            bytes_expected=self._bytes_expected,
            at_most_seconds=self._at_most_seconds,
        )


class loading(_Marked):  # noqa: N801 - reads as a statement: `with guard.loading(path) as load:`
    """Say that a checkpoint is being read: `with guard.loading("model.bin", bytes_expected=n) as load: ...`.

    Args:
        what: a file path, or a label where there is no file.
        bytes_expected: size of the whole work in bytes, None if not known.
    """

    __slots__ = ()
    _kind = "load"

    def __init__(self, what: str | os.PathLike[str], bytes_expected: int | None = None) -> None:
        super().__init__("guard.loading", _text(what), bytes_expected, None)

    def __enter__(self) -> loading:  # noqa: PYI034 - not made for subclassing; `typing` stays unimported
        """Begin the mark."""
        self._open()
        return self

    def progress(self, item: str | None = None, bytes_done: int | None = None) -> None:
        """Say which item (tensor, shard) is in flight and how many bytes are done; None leaves a value as it was."""
        slot = self._slot
        if slot is not None:
            try:
                slot.progress(item, bytes_done)
            except Exception as error:
                if not swallowed("loading", error):
                    raise


def _text(what: object) -> str | None:
    """Give a path of any kind, or a label, as text; None for what has none."""
    if isinstance(what, str):
        return what
    try:
        return os.fsdecode(what) if isinstance(what, (bytes, os.PathLike)) else str(what)
    except Exception as error:
        if not swallowed("loading", error):
            raise
        return None


class busy(_Marked):  # noqa: N801 - reads as a statement: `with guard.busy("compile", at_most=600):`
    """Say that work without visible progress is going on (compile, warm-up, graph capture), and for how long at most.

    Args:
        label: what is being done.
        at_most: seconds after which it is not normal any more. There is no default: a credit without end hides a hang.
    """

    __slots__ = ()
    _kind = "busy"

    def __init__(self, label: str, *, at_most: float) -> None:
        super().__init__(label, None, None, at_most)

    def __enter__(self) -> busy:  # noqa: PYI034 - not made for subclassing; `typing` stays unimported
        """Begin the mark."""
        self._open()
        return self


def beat(name: str, n: int = 1) -> None:
    """Count progress of the server under a name: loop ticks, requests, tokens. Made for hot paths."""
    box = keeper.box
    if box is None:
        box = keeper.wake() if keeper.waiting else None
        if box is None:
            return
    try:
        box.beat(name, n)
    except Exception as error:
        if not swallowed("beat", error):
            raise


def report(exc: BaseException) -> None:
    """Record an exception that the server caught and survived. It is never blamed for a later exit."""
    with fence("report"):
        import threading

        keeper.caught(exc, "reported", fatal=False, thread=threading.current_thread().name)


if TYPE_CHECKING:

    @overload
    def on_pressure(what: F) -> F: ...
    @overload
    def on_pressure(what: str, *, cooldown_seconds: float | None = None) -> Callable[[F], F]: ...


def on_pressure(what: F | str, *, cooldown_seconds: float | None = None) -> F | Callable[[F], F]:
    """Have a function called under pressure with the notice (`.level`, `.reason`), in a thread of the guard.

    A decorator, in two forms:

        @guard.on_pressure("critical")  runs when pressure is "critical" ("warning": that or worse), and again after the
                                        cooldown while it lasts. What it gave back is measured and shows in `status()`.
        @guard.on_pressure              hears of each change of the level, back to "none" included.

    Args:
        what: the level, or the function itself.
        cooldown_seconds: between two runs, 30 by default, 1 at least. For the first form alone.

    Raises:
        ValueError: there is no such level, or the cooldown is no number of seconds.
        TypeError: what is given is no function, or an `async` one: nobody would await it.
    """
    if not isinstance(what, str):
        return _listen(what, None, cooldown_seconds)
    if what not in _LEVELS:
        raise ValueError(f"a level is one of {', '.join(_LEVELS)}, not {what!r}")
    return lambda callback: _listen(callback, what, cooldown_seconds)


def _listen(callback: F, level: str | None, cooldown_seconds: float | None) -> F:
    check_callback(callback)
    check_cooldown(cooldown_seconds)
    with fence("on_pressure"):
        from guard.relief_setup import listen

        listen(keeper, callback, level, cooldown_seconds)
    return callback


def relieve(*actions: str, level: str | None = None, cooldown_seconds: float | None = None) -> None:
    """Have built-in actions run under pressure: "malloc_trim", "page_cache", "host_cache", "cuda_cache"; none: all.

    Args:
        actions: see docs/relief.md for what each does and when it does nothing.
        level: from which they run. None: each its own, "warning" for the first two, "critical" for the others.
        cooldown_seconds: between two runs of one action, 30 by default, 1 at least.

    Raises:
        ValueError: there is no such action or level, or the cooldown is no number of seconds.
    """
    from guard.relief_setup import add_built_in

    add_built_in(keeper, actions, level, cooldown_seconds)


def admit() -> Admission:
    """Ask whether a request may come in: not while memory is critical.

    `with guard.admit(): ...` raises `guard.UnderPressureError`, or counts the request for as long as it is in;
    `if not guard.admit(): ...` only asks.
    """
    return Admission(requests, keeper.turned_away())


def cuda_memory(
    *,
    fraction: float | None = None,
    reserve_bytes: int | None = None,
    device: int | None = None,
) -> CudaMemory:
    """Have torch keep to a part of a GPU, and keep a reserve for the request that finds it full.

    Call it once CUDA is up. `uninstall()` takes it back.

    Args:
        fraction: of the card that torch's allocator may take, 0 to 1. The rest is for cuBLAS, cuDNN and NCCL.
        reserve_bytes: taken now, used by torch only when everything else is full.
        device: the GPU; the current one by default.

    Returns:
        What is in force now, and in `refused` why something is not. It never raises.
    """
    from guard.cuda.limits import CudaMemory, limits

    if _current is None:
        return CudaMemory(device=device, refused=("the guard is not installed",))
    with fence("cuda_memory"):
        return limits.set(fraction, reserve_bytes, device)
    return CudaMemory(device=device, refused=("it failed: see guard.status().troubles",))


def status() -> Status:
    """Say what the guard does in this process right now: hooks, box, link, and everything that went wrong."""
    from guard.condition import gather

    return gather(active=_current is not None)
