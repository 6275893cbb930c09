"""The `oomguard` command: finds our `guard` where the server has a module of that name too.

PYTHONPATH is the server's, and comes before the place where we are installed: a server's own `guard.py` on it would be
imported for ours, and the server would not start. So our package is loaded from beside this one, under its name, in
this process alone; the server imports what it always does. This entry lies here because the wheel holds two packages,
and `guard` is the name that servers use.

Nothing but this line of the command is in the sidecar's hands: none of its dependencies is imported.
"""

# ruff: noqa: PTH100, PTH120 - pathlib is memory that the runner does not need

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final

_GUARD: Final = "guard"
_INTERRUPTED: Final = 130
_PLACE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main() -> int:
    """Run the command with our `guard`; give its exit status. Ctrl-C ends one that has no words for it without any."""
    try:
        _take_ours()
        status: int = importlib.import_module(f"{_GUARD}.cli").main()
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _take_ours() -> None:
    spec = PathFinder.find_spec(_GUARD, [_PLACE])
    loaded = getattr(sys.modules.get(_GUARD), "__file__", None)
    if spec is None or spec.loader is None or loaded == spec.origin:
        return  # not beside us: an ordinary import says so
    ours = module_from_spec(spec)
    sys.modules[_GUARD] = ours
    spec.loader.exec_module(ours)
