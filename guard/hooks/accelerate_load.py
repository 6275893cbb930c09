"""Owner of accelerate's `load_checkpoint_in_model` and `load_checkpoint_and_dispatch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guard.hooks.load_call import argument, begin_call
from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper

_LABEL = "accelerate.load_checkpoint"
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
        return begin_call(keeper, _LABEL, argument(args, kwargs, 1, "checkpoint"), bar=False)

    patches = Patches()
    patches.set(module, name, marked(keeper, getattr(module, name), _LABEL, begin_load), also=also)
    return patches.undo
