"""Owner of `torch.jit.load`. It reads in one call that holds the GIL: file and size are told, no tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guard.hooks.load_call import argument, begin_call
from guard.hooks.loads_in_flight import Work, completed
from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper

_LABEL = "torch.jit.load"


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the function of `torch.jit._serialization`."""

    def begin_load(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        return begin_call(keeper, argument(args, kwargs, 0, "f"), Work(label=_LABEL))

    patches = Patches()
    patches.set(module, "load", marked(keeper, module.load, _LABEL, begin_load, completed), also=("torch.jit",))
    return patches.undo
