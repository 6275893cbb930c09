"""Owner of the exit mark: the interpreter came to its orderly end.

The status is known only after an uncaught exception (1). SystemExit is seen by no hook, and wrapping `sys.exit`
would miss `raise SystemExit`; so the mark says "orderly, status unknown" and the runner or the supervisor adds the
number. `os._exit` leaves no mark on purpose: it is what crash handlers and forked workers use.

Registered at install, so it runs after the exit handlers that the server registers later.
"""

from __future__ import annotations

import atexit

from guard.fence import fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.keeper import Keeper


def install(keeper: Keeper) -> Callable[[], None]:
    """Register the mark. A process that never woke up leaves no box and so no mark."""

    def mark() -> None:
        box = keeper.box
        if box is not None:
            with fence("exit mark"):
                box.exit(keeper.exit_status)

    def undo() -> None:
        atexit.unregister(mark)

    atexit.register(mark)
    return undo
