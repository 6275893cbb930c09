"""Owner of `sys.excepthook`: an exception that ends the main thread ends the process.

SystemExit never comes here (the interpreter handles it before), KeyboardInterrupt is a request and no failure. In an
interactive session the interpreter goes on after the hook, so nothing is fatal there.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from guard.keeper import Keeper

_UNCAUGHT_STATUS = 1  # what the interpreter exits with after an uncaught exception


def install(keeper: Keeper) -> Callable[[], None]:
    """Put our hook over the present one."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], exc: BaseException, tb: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            fatal = not (hasattr(sys, "ps1") or sys.flags.interactive)
            keeper.caught(exc, "exception", fatal=fatal, thread="MainThread")
            if fatal:
                keeper.exit_status = _UNCAUGHT_STATUS
        previous(kind, exc, tb)

    def undo() -> None:
        if sys.excepthook is hook:
            sys.excepthook = previous

    sys.excepthook = hook
    return undo
