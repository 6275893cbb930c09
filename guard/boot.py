"""Start the guard in a server that does not know of it, from `guard/site/sitecustomize.py`.

The server's Python may belong to another environment, and `guard` is a name that servers use themselves. So:

    * Our package is loaded from its own location under the name `_oomguard`; no directory is added to `sys.path`.
    * Our modules say `from guard.x import y`. For them alone, by an `__import__` in their own `__builtins__`, that
      means `_oomguard.x`: compiled files are shared with the ordinary package, nothing is rewritten.
    * When the server itself imports `guard`, its own search path decides, at that moment: if it finds a module of
      that name that is not ours, that one is imported as always; else it gets our package, the one that is active
      already.

Rejected: deciding at start whether the server has a `guard` of its own. The script's folder is not on `sys.path`
yet while `sitecustomize` runs, and uvicorn and others add theirs later still.

This file is executed by whatever Python the server runs, so it is written for any Python 3.7 or later.
"""

# ruff: noqa: PTH100, PTH118, PTH120 - pathlib would be imported in every interpreter

from __future__ import annotations

import builtins
import importlib
import os
import sys
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import CodeType, ModuleType

OLDEST = (3, 11)
PUBLIC = "guard"
ALIAS = "_oomguard"
_ROOT = os.path.dirname(os.path.abspath(__file__))


def activate() -> None:
    """Install the guard: at once with box and link in the process that the runner started, waiting in all others."""
    is_server = os.environ.get("OOMGUARD_MAIN") == str(os.getpid())
    if sys.version_info < OLDEST:
        if is_server:
            sys.stderr.write(f"oomguard: no hooks in this server: Python {sys.version.split()[0]} is older than 3.11\n")
        return
    sys.meta_path.insert(0, _Finder())
    api = importlib.import_module(f"{ALIAS}.api")
    if is_server:
        api.install()
    else:
        api.prepare()


def _is_below(name: str, top: str) -> bool:
    return name == top or name.startswith(top + ".")


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,  # noqa: A002 - the names of `builtins.__import__`
    locals: Mapping[str, object] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import as always, except that `guard` means our package."""
    if level == 0 and _is_below(name, PUBLIC):
        name = ALIAS + name[len(PUBLIC) :]
    return builtins.__import__(name, globals, locals, fromlist, level)


class _OurLoader(SourceFileLoader):
    """Loads a module of ours; its imports go through `_import`."""

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own builtins, then run it."""
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


class _Redirect:
    """Loads a public name of ours by putting the module that is active already in its place."""

    def __init__(self, ours: ModuleSpec) -> None:
        self._ours = ours

    def create_module(self, spec: ModuleSpec) -> None:
        """Let the interpreter make a blank one."""

    def exec_module(self, module: ModuleType) -> None:
        """Replace the blank module; the import system takes what it finds in `sys.modules`."""
        sys.modules[module.__name__] = importlib.import_module(self._ours.name)

    def get_code(self, _name: str) -> CodeType | None:
        """Give its code, for `python -m`."""
        loader = self._ours.loader
        return loader.get_code(self._ours.name) if isinstance(loader, SourceFileLoader) else None


class _Finder:
    """Finds `_oomguard` always, and `guard` where the server has none of its own."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of our modules; None, at the cost of two comparisons, for all other names."""
        if name.startswith(ALIAS) and _is_below(name, ALIAS):
            return _find_ours(name, path)
        if name.startswith(PUBLIC) and _is_below(name, PUBLIC) and self._is_ours(name, target):
            ours = _find_ours(ALIAS + name[len(PUBLIC) :], path)
            return ours and ModuleSpec(name, _Redirect(ours), origin=ours.origin)  # type: ignore[arg-type]
        return None

    def _is_ours(self, name: str, target: ModuleType | None) -> bool:
        if name != PUBLIC:
            return sys.modules.get(PUBLIC) is sys.modules.get(ALIAS)
        for finder in tuple(sys.meta_path):
            find_spec = None if finder is self else getattr(finder, "find_spec", None)  # absent in finders of old
            spec = None if find_spec is None else find_spec(name, None, target)
            if spec is not None:
                return spec.origin is not None and os.path.dirname(os.path.abspath(spec.origin)) == _ROOT
        return True


def _find_ours(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    if name != ALIAS:
        return FileFinder((path or [_ROOT])[0], (_OurLoader, [".py"])).find_spec(name)
    file = os.path.join(_ROOT, "__init__.py")
    spec = ModuleSpec(name, _OurLoader(name, file), origin=file, is_package=True)
    spec.submodule_search_locations = [_ROOT]
    spec.has_location = True
    return spec
