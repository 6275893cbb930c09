"""Owner of `load_file`, `load` and `load_model` of `safetensors.torch`, and of the first two of numpy and flax.

`load_file` opens its file through `safe_open` and, since safetensors 0.8, asks for all tensors in one call: then the
box tells the file and its bytes, but no tensor (why it is not taken apart: docs/decisions.md, 50). Mapped (the default
on the CPU) that call takes no time and no memory; what is dear is the first touch of the pages, in whatever the host
does next (`load_state_dict` tells tensors again). With `backend="pread"` or a device it reads everything, and how far
it is can be seen from outside only: in the growth of the process and its reads.

numpy and flax take a copy of every tensor, mapped or not.

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
    """Wrap what one of the three modules has of the functions."""
    prefix = module.__name__

    def file_at(position: int, label: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Finishable | None]:
        def begin_file(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
            path = absolute(args[position] if len(args) > position else kwargs["filename"])
            outer = enclosing(keeper, path)
            if outer is not None:
                return Part(outer)
            reads = kwargs.get("backend") == "pread" and str(kwargs.get("device", "cpu")) == "cpu"
            name = f"{label}(backend='pread')" if reads and label == "safetensors.torch.load_file" else label
            shard = None if path is None else read_shard(path)
            expected = None if shard is None else shard.total_bytes
            load = begin(keeper, Work(label=name, path=path, expected=expected, copies=label.endswith("load_model")))
            if load is not None:
                load.shard = shard
            return load

        return begin_file

    def begin_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        data = args[0] if args else kwargs["data"]
        outer = enclosing(keeper)
        if outer is not None:
            outer.turn(f"{prefix}.load", len(data))
            return Part(outer)
        return begin(keeper, Work(label=f"{prefix}.load", expected=len(data)))

    patches = Patches()
    for name, begin_one in (
        ("load_file", file_at(0, f"{prefix}.load_file")),
        ("load_model", file_at(1, f"{prefix}.load_model")),
        ("load", begin_bytes),
    ):
        if hasattr(module, name):  # a model is torch's alone
            patches.set(module, name, marked(keeper, getattr(module, name), f"{prefix}.{name}", begin_one, completed))
    return patches.undo
