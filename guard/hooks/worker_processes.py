"""Owner of how a `multiprocessing` worker ends. Its exceptions never reach `sys.excepthook`; it ends by `os._exit`.

`BaseProcess._bootstrap` (CPython 3.11 to 3.14, Lib/multiprocessing/process.py) runs `util._exit_function()` in a
`finally` around `run()`: a finalizer sees the exception that is on its way, and no frame of ours shows in the
traceback that the worker prints.

Finalizers of the parent are dropped in a forked worker before the after-fork callbacks run, so ours is registered
there; a spawned worker runs no such callback and keeps what was registered on import.
"""

from __future__ import annotations

import multiprocessing
import sys
from typing import TYPE_CHECKING

from guard.fence import fence

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper

_EARLY = 100  # above zero: before the worker waits for children of its own


class _Token:
    """What multiprocessing refers to weakly; when it is gone, so is our callback."""


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Have every worker that starts from now on note its end."""
    kept: list[object] = [_Token()]

    def begun(_token: object) -> None:
        kept.append(module.Finalize(None, ended, exitpriority=_EARLY))

    def ended() -> None:
        if keeper.session is None or multiprocessing.parent_process() is None:
            return
        exc = sys.exception()
        status = _status_of(exc)
        if exc is not None and not isinstance(exc, (SystemExit, KeyboardInterrupt)):
            name = multiprocessing.current_process().name
            keeper.caught(exc, "process_exception", fatal=True, thread=name)
        keeper.exit_status = status
        box = keeper.box
        if box is not None:
            with fence("exit mark"):
                box.exit(status)

    module.register_after_fork(kept[0], begun)  # for workers that are forked
    begun(None)  # for this process, if it turns out to be a spawned worker
    return kept.clear


def _status_of(exc: BaseException | None) -> int:
    """Give the status that `_bootstrap` will end with."""
    if exc is None:
        return 0
    if not isinstance(exc, SystemExit):
        return 1
    if exc.code is None:
        return 0
    return exc.code if isinstance(exc.code, int) else 1
