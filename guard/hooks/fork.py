"""Owner of what happens after `os.fork`: the child is a process of its own, with its own session, box and link.

`os.register_at_fork` has no way back, so it is called once a process and does nothing while the guard is not installed.
Spawned children (`multiprocessing` spawn, forkserver, `subprocess`) start anew through the environment.
"""

from __future__ import annotations

import os
import threading

from guard.threads import importing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.keeper import Keeper

_registered = threading.Lock()  # held for good once the callback is registered


def install(keeper: Keeper) -> Callable[[], None]:
    """Register the callback, once. `threading` is imported above so that its own child callback runs before ours."""
    if _registered.acquire(blocking=False):
        os.register_at_fork(
            before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release
        )
        os.register_at_fork(after_in_child=keeper.renew)  # after the release: in the child they run as registered
    return lambda: None
