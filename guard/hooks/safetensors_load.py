"""Owner of `safetensors.torch.load_file`, `load` and `load_model`.

`load_file` opens its file through `safe_open` and, since safetensors 0.8, asks for all tensors in one call: then the
box tells the file and its bytes, but no tensor. Mapped (the default on the CPU) that call takes no time and no memory;
what is dear is the first touch of the pages, in whatever the host does next (`load_state_dict` tells tensors again).
With `backend="pread"` or a device it reads everything, and how far it is can be seen from outside only: in the growth
of the process and its reads.

`load_model` calls `load_file` and then copies into the model; the mark of the outer call covers both. `load` gets bytes
and has no file (and holds the GIL for seconds per GiB).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guard.hooks.loads_in_flight import Part, Work, absolute, begin, completed, enclosing
from guard.hooks.patching import Finishable, Patches, marked
from guard.hooks.safetensors_header import read_shard

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the three functions of the module."""

    def file_at(position: int, label: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Finishable | None]:
        def begin_file(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
            path = absolute(args[position] if len(args) > position else kwargs["filename"])
            outer = enclosing(keeper, path)
            if outer is not None:
                return Part(outer)
            reads = kwargs.get("backend") == "pread" and str(kwargs.get("device", "cpu")) == "cpu"
            name = f"{label}(backend='pread')" if reads and label.endswith("load_file") else label
            expected = None if path is None else read_shard(path).total_bytes
            return begin(keeper, Work(label=name, path=path, expected=expected, copies=label.endswith("load_model")))

        return begin_file

    def begin_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        data = args[0] if args else kwargs["data"]
        outer = enclosing(keeper)
        if outer is not None:
            outer.turn("safetensors.torch.load", len(data))
            return Part(outer)
        return begin(keeper, Work(label="safetensors.torch.load", expected=len(data)))

    patches = Patches()
    for name, begin_one in (
        ("load_file", file_at(0, "safetensors.torch.load_file")),
        ("load_model", file_at(1, "safetensors.torch.load_model")),
        ("load", begin_bytes),
    ):
        patches.set(
            module, name, marked(keeper, getattr(module, name), f"safetensors.torch.{name}", begin_one, completed)
        )
    return patches.undo
