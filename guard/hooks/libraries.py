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
    ("multiprocessing.util", "worker_processes"),
    ("torch.cuda", "torch_memory"),
    ("torch.serialization", "torch_load"),
    ("torch.nn.modules.module", "module_to"),
    ("safetensors", "safe_open"),
    ("safetensors.torch", "safetensors_load"),
)
_WAKES = "torch"


def install(keeper: Keeper) -> Callable[[], None]:
    """Await every library; one that is imported already is patched at once."""
    finder = PostImport()
    undone: list[Undo] = []

    def hook_for(name: str) -> Callable[[ModuleType], None]:
        def hook(module: ModuleType) -> None:
            set_state(name, "failed")
            ours = importlib.import_module(f"{__package__}.{name}")
            undone.append(ours.install(keeper, module))
            set_state(name, "installed")
            if module.__name__.startswith(_WAKES):
                keeper.wake()  # a process that imports torch holds a model, or will

        return hook

    for library, name in LIBRARIES:
        set_state(name, f"waits for {library}")
        finder.when_imported(library, hook_for(name))

    def undo() -> None:
        finder.forget()
        while undone:
            undone.pop()()

    return undo
