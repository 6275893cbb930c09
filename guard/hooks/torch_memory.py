"""Owner of torch's CUDA out-of-memory observer: the exact figures of a failed allocation, before its exception.

    * The observer is attached by `torch.cuda._lazy_call`, so when the server brings CUDA up, and never brings it up
      itself: attaching directly would (and a server that forks afterwards would have lost CUDA in its children).
    * An exception that leaves the observer replaces the server's OutOfMemoryError, one that leaves the lazy call
      fails CUDA's start. So nothing leaves either.
    * Observers cannot be detached. One is attached once a process; while the guard is not installed it does nothing.
    * On the path of allocations that succeed there is nothing of ours: torch calls observers on failure alone.

Not seen here: cuBLAS, cuDNN, NCCL and Triton, which allocate by themselves, pinned memory, preemptive rejections
(`throw_on_cudamalloc_oom`) and the cudaMallocAsync backend. Their exceptions are recognised by `guard.recognise`.
"""

from __future__ import annotations

import os
import sys
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from guard.fence import fence, troubles

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.cuda.snapshot import Camera
    from guard.keeper import Keeper

OUT_OF_MEMORY: Final = "torch.OutOfMemoryError"


class _Attached:
    """The observer of this process, and what it needs. Kept for good: torch never lets go of it."""

    __slots__ = ("camera", "keeper", "our_history", "pid", "state")

    def __init__(self) -> None:
        self.keeper: Keeper | None = None
        self.camera: Camera | None = None
        self.pid = 0  # in which it is attached
        self.our_history = False
        self.state = "waits for CUDA"

    def on_cuda(self) -> None:
        """Attach, once a process. Called by torch when CUDA is up."""
        keeper = self.keeper
        if keeper is None or keeper.session is None:
            return
        with fence("cuda observer"):
            if self.pid != os.getpid():
                self._attach()
            from guard.box import reader  # noqa: F401 - for `_record`: it may find no descriptor to import with
            from guard.cuda import record, snapshot  # noqa: F401 - as above

            self.our_history = snapshot.start_history() or self.our_history

    def _attach(self) -> None:
        try:
            sys.modules["torch._C"]._cuda_attach_out_of_memory_observer(self.observe)  # noqa: SLF001 - its only name
        except RuntimeError as refused:  # backends that are not torch's own have no observers
            self.state = f"refused: {refused}"[:200]
            troubles.add("cuda observer", refused)
            return
        self.pid = os.getpid()
        self.state = "attached"

    def observe(self, device: int, requested: int, limit: int, free: int) -> None:
        """Record a failed allocation: first in the box, then as text. In the failing thread, with the GIL."""
        keeper = self.keeper
        if keeper is None or keeper.session is None:
            return
        with fence("cuda out of memory"):
            self._record(keeper, device, (requested, limit, free))

    def _record(self, keeper: Keeper, device: int, told_by_torch: tuple[int, int, int]) -> None:
        from guard.cuda import record
        from guard.failure import stack_above
        from guard.model import Failure
        from guard.tags import current

        box = keeper.wake()
        fields = record.asked(device, *told_by_torch)
        thread = ""
        with fence("cuda record"):
            thread = record.thread_name()
            fields.update(record.allocator(device))
            fields.update(record.in_flight(box, thread))
            fields.update(current())
        failure = Failure(
            at_wall_s=time.time(),
            at_monotonic_s=time.monotonic(),
            kind="cuda_out_of_memory",
            exception=OUT_OF_MEMORY,
            message=_sentence(fields),
            fatal=False,  # as far as anyone can know now; the hook that sees it end the process says otherwise
            thread=thread,
            stack=stack_above(sys._getframe(1).f_back),  # noqa: SLF001 - of the caller of `observe`
            fields=MappingProxyType(fields),
        )
        teller = keeper.teller()
        told = teller.observed(box, failure)
        if told.times == 1:
            more = self._more(device, None if box is None else box.path)
            if more:
                teller.add(told, box, more)
        teller.say(told.failure)

    def _more(self, device: int, box_path: str | None) -> dict[str, str | int | float]:
        """Ask what takes longer, after the record is safe."""
        from guard.cuda.holders import holders
        from guard.cuda.snapshot import Camera

        more: dict[str, str | int | float] = {}
        with fence("nvml"):
            found = holders(device)
            if found:
                more["holders"] = found
        with fence("cuda snapshot"):
            self.camera = self.camera or Camera()
            name = None if box_path is None else self.camera.take(box_path, device)
            if name is not None:
                more["snapshot"] = name
        return more


_attached = _Attached()


def state() -> str:
    """Say where the observer stands, for `status()`."""
    return _attached.state


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Have the observer attached as soon as CUDA is up. `module` is torch.cuda; a CPU build has no observer."""
    lazy: Any = module
    _attached.keeper = keeper
    if not hasattr(sys.modules.get("torch._C"), "_cuda_attach_out_of_memory_observer"):
        _attached.state = "torch without CUDA"
        return lambda: None
    lazy._lazy_call(_attached.on_cuda)  # noqa: SLF001 - torch's own way, kept since 1.x

    def undo() -> None:
        waiting = getattr(lazy, "_queued_calls", None)
        if isinstance(waiting, list):
            waiting[:] = [one for one in waiting if one[0] != _attached.on_cuda]
        from guard.cuda.limits import limits

        limits.undo()
        if _attached.our_history:
            from guard.cuda import snapshot

            _attached.our_history = False
            snapshot.stop_history()

    return undo


def _sentence(fields: dict[str, str | int | float]) -> str:
    figures = ", ".join(
        f"{fields[name]} {said}"
        for name, said in (
            ("requested_bytes", "bytes asked for"),
            ("free_bytes", "free"),
            ("limit_bytes", "allowed to this process"),
            ("total_bytes", "in all"),
        )
        if name in fields
    )
    return f"GPU {fields['device']}: {figures}"
