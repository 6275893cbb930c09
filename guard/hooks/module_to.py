"""Owner of `torch.nn.Module.to` and its like: a whole model on its way to a device or another type.

Only the outermost call of a thread is marked: one that comes from inside another, or from a load, is part of it. All
of them go through `_apply`, once a module: that tells which one is in flight.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from guard.hooks.load_sizes import unseen
from guard.hooks.loads_in_flight import Load, Work, begin, enclosing
from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper

_NAMES = ("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "to_empty")


class _Move:
    """A model on its way, with the names of its modules. One a thread."""

    __slots__ = ("_here", "_load", "names")

    def __init__(self, here: threading.local, load: Load, model: Any) -> None:  # noqa: ANN401 - torch is not imported
        self._here = here
        self._load = load
        self.names = {id(module): name for name, module in model.named_modules()}
        here.move = self

    def turn(self, module: Any) -> None:  # noqa: ANN401 - as above
        """Say that a module is in flight."""
        name = self.names.get(id(module))
        if name is not None:
            with unseen():
                size = _own_bytes(module)
            self._load.turn(name or None, size)

    def finish(self) -> None:
        """End the mark and let the thread's next call be an outermost one."""
        self._here.move = None
        self._load.finish()


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the methods of the class. While torch compiles, nothing is done: the compiler traces the original."""
    here = threading.local()
    target = module.Module

    def begin_named(name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Finishable | None]:
        def begin_move(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:  # noqa: ARG001 - one shape
            if getattr(here, "move", None) is not None or enclosing(keeper) is not None or _compiling():
                return None
            model = args[0]
            label = f"{type(model).__qualname__}.{name}"
            with unseen():
                size = sum(map(_own_bytes, model.modules()))
            load = begin(keeper, Work(label=label, kind="move", expected=size))
            return None if load is None else _Move(here, load, model)

        return begin_move

    def begin_module(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:  # noqa: ARG001 - one shape
        move: _Move | None = getattr(here, "move", None)
        if move is not None:
            move.turn(args[0])
        return None

    patches = Patches()
    for name in _NAMES:
        if hasattr(target, name):
            patches.set(target, name, marked(keeper, getattr(target, name), f"Module.{name}", begin_named(name)))
    patches.set(target, "_apply", marked(keeper, target._apply, "Module._apply", begin_module))  # noqa: SLF001 - see above
    return patches.undo


def _compiling() -> bool:
    torch: Any = sys.modules["torch"]
    return bool(torch.compiler.is_compiling())


def _own_bytes(module: Any) -> int:  # noqa: ANN401 - torch is not imported for types
    """Sum the bytes of a module's own parameters and buffers, as they are before the move."""
    groups = (module._parameters, module._buffers)  # noqa: SLF001 - `parameters()` walks all below, and takes ten times as long
    return sum(
        tensor.numel() * tensor.element_size() for group in groups for tensor in group.values() if tensor is not None
    )
