"""Owner of `torch.nn.Module.load_state_dict`: copying into a model, where mapped weights are really read.

torch loads module by module; `_load_from_state_dict` of each is told as the item, with the names of its tensors.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from guard.hooks.load_sizes import unseen
from guard.hooks.loads_in_flight import Part, Work, begin, enclosing
from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from guard.keeper import Keeper

_LABEL = "load_state_dict"


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap both methods of the class."""
    target = module.Module

    def begin_load(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        outer = enclosing(keeper)
        if outer is not None or _compiling():
            return None if outer is None else Part(outer)
        return begin(keeper, Work(label=_LABEL, expected=_size(args[1] if len(args) > 1 else kwargs.get("state_dict"))))

    def begin_module(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:  # noqa: ARG001 - one shape
        load = enclosing(keeper)
        if load is not None:
            with unseen():
                item, size = _own(args[0], args[1], args[2])
            if item is not None:
                counts = load.copies or load.path is None  # else a file's bytes are counted where they are read
                load.turn(item, size if counts else 0)
        return None

    patches = Patches()
    patches.set(target, _LABEL, marked(keeper, target.load_state_dict, _LABEL, begin_load))
    original = target._load_from_state_dict  # noqa: SLF001 - the one place that every module passes
    patches.set(target, "_load_from_state_dict", marked(keeper, original, _LABEL, begin_module))
    return patches.undo


def _own(module: Any, weights: Mapping[str, Any], prefix: str) -> tuple[str | None, int]:  # noqa: ANN401 - untyped
    """Name the tensors that a module takes itself, and sum their bytes; None where it takes none."""
    names = [name for name in (*module._parameters, *module._buffers) if prefix + name in weights]  # noqa: SLF001 - cheap
    if not names:
        return None, 0
    size = sum(_bytes(dict.__getitem__(weights, prefix + name)) for name in names) if isinstance(weights, dict) else 0
    return prefix + ", ".join(names), size


def _size(weights: object) -> int | None:
    """Sum the bytes; None for a mapping of the host's own making, which may read each tensor that it is asked for."""
    if not isinstance(weights, dict):
        return None
    with unseen():
        return sum(map(_bytes, dict.values(weights)))


def _bytes(value: Any) -> int:  # noqa: ANN401 - a tensor, or whatever a module keeps as extra state
    return int(getattr(value, "nbytes", 0) or 0)


def _compiling() -> bool:
    torch: Any = sys.modules["torch"]
    return bool(torch.compiler.is_compiling())
