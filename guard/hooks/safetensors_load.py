"""Owner of `safetensors.torch.load_file`, `load` and `load_model`.

`load_file` opens its file through `safe_open`, whose hook tells the tensor; `load_model` calls `load_file` and then
copies into the model, so the outer mark covers both. `load` gets bytes and has no file (and holds the GIL for
seconds per GiB).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from guard.hooks.loads_in_flight import begin_load, current_load
from guard.hooks.patching import Finishable, Patches, marked
from guard.hooks.safetensors_header import read_shard

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the three functions of the module."""

    def file_at(position: int, label: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Finishable | None]:
        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
            path = os.fsdecode(args[position] if len(args) > position else kwargs["filename"])
            if current_load(keeper, path) is not None:
                return None
            return begin_load(keeper, label, path, read_shard(path))

        return begin

    def begin_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        data = args[0] if args else kwargs["data"]
        return keeper.begin("load", "safetensors.torch.load", bytes_expected=len(data))

    patches = Patches()
    for name, begin in (
        ("load_file", file_at(0, "safetensors.torch.load_file")),
        ("load_model", file_at(1, "safetensors.torch.load_model")),
        ("load", begin_bytes),
    ):
        patches.set(module, name, marked(keeper, getattr(module, name), f"safetensors.torch.{name}", begin))
    return patches.undo
