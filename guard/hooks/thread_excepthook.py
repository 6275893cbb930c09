"""Owner of `threading.excepthook`: a thread that ends by an exception. The process goes on, so it is not fatal."""

from __future__ import annotations

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.keeper import Keeper


def install(keeper: Keeper) -> Callable[[], None]:
    """Put our hook over the present one. SystemExit in a thread is an orderly end, as for the default hook."""
    previous = threading.excepthook

    def hook(args: threading.ExceptHookArgs, /) -> None:
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            name = args.thread.name if args.thread is not None else ""
            keeper.caught(args.exc_value, "thread_exception", fatal=False, thread=name)
        previous(args)

    def undo() -> None:
        if threading.excepthook is hook:
            threading.excepthook = previous

    threading.excepthook = hook
    return undo
