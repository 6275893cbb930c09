"""Activates the guard in a Python server that `oomguard run` starts; this folder is then first on PYTHONPATH.

Also without `oomguard run`: put the folder that `oomguard site-dir` prints on PYTHONPATH and set OOMGUARD=on.

Python imports one `sitecustomize` only, so this one makes room for the next on the path. That one runs last and
unfenced: what it raises is reported by `site` as always. Syntax: any Python 3, since the server's may be older than
ours.
"""

# ruff: noqa: PTH100, PTH118, PTH120 - pathlib would be imported in every interpreter
# ruff: noqa: INP001 - a path entry, no package

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader

_HERE = os.path.dirname(os.path.abspath(__file__))


# As in `guard.switches`, which cannot be imported yet; not set or empty is off here, as nobody has asked for the guard.
_OFF = ("", "off", "0", "false", "no")


def _same(entry: str) -> bool:
    return os.path.abspath(entry or ".") == _HERE


def _activate() -> None:
    path = os.path.join(os.path.dirname(_HERE), "boot.py")
    boot = type(sys)("_oomguard_boot")
    boot.__file__ = path
    SourceFileLoader(boot.__name__, path).exec_module(boot)
    boot.activate()


def _complain(text: str) -> None:
    try:  # noqa: SIM105 - contextlib is dear to whoever would not import it
        sys.stderr.write(text)
    except Exception:  # noqa: BLE001, S110 - closed or full, which must not end the server's start
        pass


def _next_one() -> None:
    spec = PathFinder.find_spec("sitecustomize", list(sys.path))
    if spec is None or spec.loader is None:
        return
    module = type(sys)("sitecustomize")
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


sys.path[:] = [entry for entry in sys.path if not _same(entry)]
try:
    if os.environ.get("OOMGUARD", "").strip().lower() not in _OFF:
        _activate()
except Exception as error:  # noqa: BLE001 - whatever it is, the server starts without the guard
    _complain(f"oomguard: the guard is off in this process: {error!r}\n")
_next_one()
