"""Owner of `from_pretrained` of diffusers: whole pipelines and single models. diffusers draws its own progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guard.hooks.load_call import argument, begin_call, in_subfolder, local_folder, wrap_classmethod
from guard.hooks.loads_in_flight import Work
from guard.hooks.patching import Finishable, Patches

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper

_LABEL = "diffusers.from_pretrained"
_CLASSES = {
    "diffusers.pipelines.pipeline_utils": "DiffusionPipeline",
    "diffusers.models.modeling_utils": "ModelMixin",
}


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the class method of one of the two modules."""

    def begin_load(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        source = argument(args, kwargs, 1, "pretrained_model_name_or_path")
        folder = in_subfolder(local_folder(source, kwargs.get("revision")), kwargs.get("subfolder"))
        return begin_call(keeper, folder, Work(label=_LABEL, copies=True, bar=False))

    patches = Patches()
    wrap_classmethod(keeper, patches, getattr(module, _CLASSES[module.__name__]), "from_pretrained", begin_load)
    return patches.undo
