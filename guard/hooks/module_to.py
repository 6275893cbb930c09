"""Owner of `torch.nn.Module.to`: a whole model on its way to a device or another type.

Only the outermost call of a thread is marked: one that comes from inside another `to` is part of it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper


class _Outermost:
    """The mark of a thread's outermost call."""

    __slots__ = ("_inside", "_slot")

    def __init__(self, inside: threading.local, slot: Finishable | None) -> None:
        self._inside = inside
        self._slot = slot
        inside.busy = True

    def finish(self) -> None:
        """End the mark and let the thread's next call be an outermost one."""
        self._inside.busy = False
        if self._slot is not None:
            self._slot.finish()


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the method of the class. While torch compiles, nothing is done: the compiler traces the original."""
    inside = threading.local()
    original = module.Module.to

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:  # noqa: ARG001 - one shape for all
        if getattr(inside, "busy", False) or _compiling():
            return None
        model = args[0]
        return _Outermost(
            inside, keeper.begin("move", f"{type(model).__qualname__}.to", bytes_expected=_bytes_of(model))
        )

    patches = Patches()
    patches.set(module.Module, "to", marked(keeper, original, "Module.to", begin))
    return patches.undo


def _compiling() -> bool:
    import torch

    return bool(torch.compiler.is_compiling())


def _bytes_of(model: Any) -> int:  # noqa: ANN401 - torch is not imported for types
    """Sum the bytes of parameters and buffers, as they are before the move."""
    return sum(
        tensor.numel() * tensor.element_size() for group in (model.parameters(), model.buffers()) for tensor in group
    )
