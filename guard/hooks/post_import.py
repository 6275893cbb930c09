"""Run a function right after the host has imported a module, without importing it ourselves.

A finder at the front of `sys.meta_path` looks at names in its table and at nothing else. For such a name it asks
the finders behind it, as the interpreter would, and gives the spec on as it is, with the loader it came with: only
that one loader object gets an `exec_module` of its own for one call. So `__spec__`, `__loader__`, resources and
`runpy` see what they always saw. The finder leaves when its table is empty.

Rejected: wrapt's post-import hooks. Importing wrapt costs every interpreter about 25 ms and 120 modules (measured
2.5.2, Python 3.11), its finder can never be taken out again, an error in a hook fails the host's import, and a
server whose environment is not ours would have no hooks at all.
"""

from __future__ import annotations

import sys
from types import ModuleType

from guard.fence import fence, troubles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec

    Hook = Callable[[ModuleType], None]


class PostImport:
    """The table of awaited modules, and the finder."""

    __slots__ = ("_awaited",)

    def __init__(self) -> None:
        self._awaited: dict[str, list[Hook]] = {}

    def when_imported(self, name: str, hook: Hook) -> None:
        """Call the hook with the module: now if it is there, else right after its import."""
        module = _finished(name)
        if module is not None:
            _call(hook, name, module)
            return
        self._awaited.setdefault(name, []).append(hook)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def forget(self) -> None:
        """Wait for nothing any more."""
        self._awaited.clear()
        self._leave_if_idle()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find an awaited module through the other finders; None, at the cost of one dict lookup, for all others."""
        if name not in self._awaited:
            return None
        self._catch_up()
        for finder in tuple(sys.meta_path):
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(name, path, target) if find_spec is not None else None
            if spec is not None:
                with fence("post-import"):
                    self._arrange(spec)
                return spec
        return None

    def _arrange(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if loader is None or execute is None or "exec_module" in getattr(loader, "__dict__", {"exec_module": 0}):
            troubles.add("post-import", f"{spec.name}: its loader cannot be observed")
            return

        def exec_module(module: ModuleType) -> None:
            awaited = module.__name__ == spec.name
            if awaited:
                del loader.exec_module
            execute(module)
            if awaited and spec.loader is not loader:  # a lazy one, which puts the real loader in its place for later
                self._arrange(spec)
            elif awaited:
                self._loaded(spec.name, module)

        loader.exec_module = exec_module  # type: ignore[method-assign]

    def _loaded(self, name: str, module: ModuleType) -> None:
        hooks = self._awaited.pop(name, ())
        self._leave_if_idle()
        for hook in hooks:
            _call(hook, name, module)

    def _catch_up(self) -> None:
        """See to awaited modules that came by a finder in front of ours."""
        for name in tuple(self._awaited):
            module = _finished(name)
            if module is not None:
                self._loaded(name, module)

    def _leave_if_idle(self) -> None:
        if not self._awaited and self in sys.meta_path:
            sys.meta_path.remove(self)


def _finished(name: str) -> ModuleType | None:
    """Give a module that is there and whole: not one in the middle of its import, nor a lazy one that waits for its."""
    module = sys.modules.get(name)
    if type(module) is not ModuleType or getattr(module.__spec__, "_initializing", False):
        return None
    return module


def _call(hook: Hook, name: str, module: ModuleType) -> None:
    with fence(f"hook {name}"):
        hook(module)
