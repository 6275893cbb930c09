"""Owner of `torch.export.load` and of AOTInductor's `aoti_load_package` and `load_package`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guard.hooks.load_call import argument, begin_call
from guard.hooks.loads_in_flight import Work, completed
from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper

# By module: the function, the name of its first argument, the label, and who re-exports it.
_CALLS = {
    "torch.export": ("load", "f", "torch.export.load", ()),
    "torch._inductor": ("aoti_load_package", "path", "torch.aoti_load_package", ()),
    "torch._inductor.package.package": (
        "load_package",
        "path",
        "torch.aoti_load_package",
        ("torch._inductor.package",),
    ),
}


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the function of one of the three modules."""
    name, first, label, also = _CALLS[module.__name__]

    def begin_load(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        return begin_call(keeper, argument(args, kwargs, 0, first), Work(label=label))

    patches = Patches()
    patches.set(module, name, marked(keeper, getattr(module, name), label, begin_load, completed), also=also)
    return patches.undo
