"""Owner of accelerate's `load_checkpoint_in_model` and `load_checkpoint_and_dispatch`.

`set_module_tensor_to_device` copies one tensor, for accelerate and for diffusers: it tells which one is in flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guard.hooks.load_call import argument, begin_call
from guard.hooks.load_sizes import unseen
from guard.hooks.loads_in_flight import Work, completed, enclosing
from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper

_LABEL = "accelerate.load_checkpoint"
_TENSOR = "set_module_tensor_to_device"
_COPIERS = ("accelerate.utils", "accelerate.big_modeling", "accelerate.hooks", "diffusers.models.model_loading_utils")
# By module: the function and who re-exports it.
_CALLS = {
    "accelerate.utils.modeling": (
        "load_checkpoint_in_model",
        ("accelerate.utils", "accelerate.big_modeling", "accelerate"),
    ),
    "accelerate.big_modeling": ("load_checkpoint_and_dispatch", ("accelerate",)),
}


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the function of one of the two modules."""
    name, also = _CALLS[module.__name__]

    def begin_load(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        return begin_call(keeper, argument(args, kwargs, 1, "checkpoint"), Work(label=_LABEL, copies=True, bar=False))

    def begin_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        load = enclosing(keeper)
        if load is not None:
            with unseen():
                size = int(getattr(argument(args, kwargs, 3, "value"), "nbytes", 0) or 0)
            load.turn(argument(args, kwargs, 1, "tensor_name"), size if load.copies else 0)
        return None

    patches = Patches()
    patches.set(module, name, marked(keeper, getattr(module, name), _LABEL, begin_load, completed), also=also)
    if hasattr(module, _TENSOR) and module.__name__.endswith("modeling"):
        wrapper = marked(keeper, getattr(module, _TENSOR), _TENSOR, begin_tensor)
        patches.set(module, _TENSOR, wrapper, also=_COPIERS)
    return patches.undo
