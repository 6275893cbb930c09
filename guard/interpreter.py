"""Which interpreter of the process this is. mod_wsgi and programs that embed Python may run several.

The guard stays out of all but the main one: its threads are daemons, and an interpreter that ends while one of those
runs takes the whole process with it ("Fatal Python error: Py_EndInterpreter", CPython 3.11, Python/pylifecycle.c).
"""

from __future__ import annotations

import sys

_MODULE = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"


def is_main() -> bool:
    """Whether this is the main interpreter; a Python that cannot say has no other."""
    import importlib

    try:
        interpreters = importlib.import_module(_MODULE)
    except ImportError:
        return True
    return bool(interpreters.get_current() == interpreters.get_main())
