"""Owner of constructors that load a model in native code: onnxruntime, gguf, CTranslate2, llama.cpp.

Each reads in one call of which nothing can be seen from Python: file and size are told, no tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guard.hooks.load_call import argument, begin_call
from guard.hooks.loads_in_flight import Work, begin, completed, enclosing
from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper

# By module: its classes, the name of the first argument, and the label.
_CLASSES = {
    "onnxruntime.capi.onnxruntime_inference_collection": (
        ("InferenceSession",),
        "path_or_bytes",
        "onnxruntime.InferenceSession",
    ),
    "gguf.gguf_reader": (("GGUFReader",), "path", "gguf.GGUFReader"),
    "llama_cpp.llama": (("Llama",), "model_path", "llama_cpp.Llama"),
    "ctranslate2": (("Translator", "Generator", "Encoder"), "model_path", "ctranslate2"),
    "ctranslate2.models": (("Whisper", "Wav2Vec2", "Wav2Vec2Bert"), "model_path", "ctranslate2"),
}


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap `__init__` of the classes of one of the modules."""
    names, first, label = _CLASSES[module.__name__]

    def begin_load(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        source = argument(args, kwargs, 1, first)
        if not isinstance(source, bytes):
            return begin_call(keeper, source, Work(label=label))
        if enclosing(keeper) is not None:
            return None
        return begin(keeper, Work(label=f"{label}(bytes)", expected=len(source)))

    patches = Patches()
    for name in names:
        owner = getattr(module, name, None)
        if owner is not None:
            patches.set(owner, "__init__", marked(keeper, owner.__init__, label, begin_load, completed))
    return patches.undo
