"""Which library modules get which hook once the host imports them. Nothing third-party is imported to know the list."""

from __future__ import annotations

import importlib

from guard.hooks import set_state
from guard.hooks.post_import import PostImport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper

    Undo = Callable[[], None]

# The defining module is awaited, not the package: what the package re-exports is then ours from the start.
LIBRARIES = (
    ("asyncio.base_events", "asyncio_errors"),
    ("asyncio.selector_events", "asyncio_loop"),
    ("uvloop", "asyncio_loop"),
    ("multiprocessing.util", "worker_processes"),
    ("torch.cuda", "torch_memory"),
    ("torch.serialization", "torch_load"),
    ("torch.nn.modules.module", "module_to"),
    ("torch.nn.modules.module", "module_load"),
    ("torch.jit._serialization", "jit_load"),
    ("torch.export", "export_load"),
    ("torch._inductor", "export_load"),
    ("torch._inductor.package.package", "export_load"),
    ("safetensors", "safe_open"),
    ("safetensors.torch", "safetensors_load"),
    ("safetensors.numpy", "safetensors_load"),
    ("safetensors.flax", "safetensors_load"),
    ("transformers.modeling_utils", "transformers_load"),
    ("accelerate.utils.modeling", "accelerate_load"),
    ("accelerate.big_modeling", "accelerate_load"),
    ("diffusers.pipelines.pipeline_utils", "diffusers_load"),
    ("diffusers.models.modeling_utils", "diffusers_load"),
    ("onnxruntime.capi.onnxruntime_inference_collection", "constructor_load"),
    ("gguf.gguf_reader", "constructor_load"),
    ("llama_cpp.llama", "constructor_load"),
    ("ctranslate2", "constructor_load"),
    ("ctranslate2.models", "constructor_load"),
)
_WAKES = "torch"


def install(keeper: Keeper) -> Callable[[], None]:
    """Await every library; one that is imported already is patched at once."""
    finder = PostImport()
    undone: list[Undo] = []
    hooks = [name for _, name in LIBRARIES]

    def hook_for(name: str, state: str) -> Callable[[ModuleType], None]:
        def hook(module: ModuleType) -> None:
            set_state(state, "failed")
            ours = importlib.import_module(f"{__package__}.{name}")
            undone.append(ours.install(keeper, module))
            set_state(state, "installed")
            if module.__name__.startswith(_WAKES):
                keeper.wake()  # a process that imports torch holds a model, or will

        return hook

    for library, name in LIBRARIES:
        state = name if hooks.count(name) == 1 else f"{name}: {library}"
        set_state(state, f"waits for {library}")
        finder.when_imported(library, hook_for(name, state))

    def undo() -> None:
        finder.forget()
        while undone:
            undone.pop()()

    return undo
