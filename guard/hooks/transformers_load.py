"""Owner of `PreTrainedModel.from_pretrained` of transformers, and of what it allocates before it loads.

The mark is of the whole checkpoint; shards and tensors are told by the hook of `safe_open` under it. transformers draws
its own progress bar.

`caching_allocator_warmup` takes one block of about the whole model's size on each device, so that the loading after it
is quick. It is told as the item: an out of memory in there is no leak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guard.hooks.load_call import argument, begin_call, in_subfolder, local_folder, wrap_classmethod
from guard.hooks.loads_in_flight import Work, enclosing
from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.footprint import Footprint
    from guard.keeper import Keeper

_LABEL = "transformers.from_pretrained"
_WARMUP = "caching_allocator_warmup"


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap them in `transformers.modeling_utils`."""

    def begin_load(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        folder = local_folder(argument(args, kwargs, 1, "pretrained_model_name_or_path"), kwargs.get("revision"))
        folder = in_subfolder(folder, kwargs.get("subfolder"))
        return begin_call(keeper, folder, Work(label=_LABEL, bar=False), lambda found: _converted(found, kwargs))

    def begin_warmup(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:  # noqa: ARG001 - one shape
        load = enclosing(keeper)
        if load is not None:
            load.turn(_WARMUP)
        return None

    patches = Patches()
    wrap_classmethod(keeper, patches, module.PreTrainedModel, "from_pretrained", begin_load)
    if hasattr(module, _WARMUP):
        patches.set(module, _WARMUP, marked(keeper, module.caching_allocator_warmup, _WARMUP, begin_warmup))
    return patches.undo


def _converted(found: Footprint, kwargs: dict[str, Any]) -> int | None:
    """Give the bytes of a model that stays on the host in another type than the files': those are new memory."""
    from guard.footprint import dtype_name

    wanted = dtype_name(str(kwargs.get("dtype") or kwargs.get("torch_dtype") or ""))
    elsewhere = kwargs.get("device_map") is not None or kwargs.get("quantization_config") is not None
    if wanted is None or elsewhere or not any(set(file.by_dtype) - {wanted} for file in found.files):
        return None
    return found.bytes_as(wanted)
