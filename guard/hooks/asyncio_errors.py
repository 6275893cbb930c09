"""Owner of asyncio's last resort: `BaseEventLoop.call_exception_handler`, where exceptions that nobody awaited arrive.

The server's own handler (`loop.set_exception_handler`) stays what it is and runs as before; we only look first.
Nothing that arrives here ends the process. Loops not built on BaseEventLoop (uvloop) are not seen.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from guard.fence import fence
from guard.hooks.patching import Patches

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the method of the class; loops that exist already are covered too."""
    loop = module.BaseEventLoop
    original = loop.call_exception_handler

    @functools.wraps(original)
    def call_exception_handler(self: object, context: dict[str, Any]) -> None:
        with fence("asyncio"):
            exc = context.get("exception")
            if isinstance(exc, BaseException):
                keeper.caught(exc, "asyncio_exception", fatal=False, thread="")
        original(self, context)

    patches = Patches()
    patches.set(loop, "call_exception_handler", call_exception_handler)
    return patches.undo
