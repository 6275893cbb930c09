"""Owner of `torch.load`: which file, how large, and which tensor is being read.

Within one `torch.load` of a zip file every storage is read by one call of `PyTorchFileReader`. That gives the storage
("data/17"); its tensor's name lies on the stack of torch's own weights-only unpickler, which is Python, and is read
there. Another unpickler has no such stack, a legacy pickle is read in one go, and `mmap=True` reads nothing at all.
"""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

from guard.hooks.load_sizes import sizes
from guard.hooks.loads_in_flight import Load, Part, Work, absolute, begin, completed, enclosing
from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType

    from guard.keeper import Keeper

_LABEL = "torch.load"
_FRAMES_TO_UNPICKLER = 8
_UNPICKLER = "_weights_only_unpickler.py"


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the function where it is defined and where torch re-exports it, and the reader of storages."""

    def begin_load(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        source = args[0] if args else kwargs.get("f")
        path = absolute(_file_of(source) if hasattr(source, "read") else source)
        outer = enclosing(keeper, path)
        if outer is not None:
            outer.turn("torch.load", 0, path)
            return Part(outer)
        return _begin(keeper, source, path, args, kwargs)

    def begin_storage(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        load = enclosing(keeper)
        if load is not None:
            size = args[2] if len(args) > 2 else kwargs.get("numel", 0)  # noqa: PLR2004 - reader, name, size, type
            load.turn(_item(args[1]), size)
        return None

    patches = Patches()
    patches.set(module, "load", marked(keeper, module.load, _LABEL, begin_load, completed), also=("torch",))
    reader = sys.modules["torch._C"].PyTorchFileReader
    patches.set(
        reader, "get_storage_from_record", marked(keeper, reader.get_storage_from_record, _LABEL, begin_storage)
    )
    return patches.undo


def _begin(
    keeper: Keeper, source: object, path: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Load | None:
    if path is None:
        size = _length(source) if type(source) is io.BytesIO else None
        return begin(keeper, Work(label="torch.load(BytesIO)" if size else _LABEL, expected=size))
    found, expected = sizes(path)
    place = kwargs.get("map_location", args[1] if len(args) > 1 else None)
    label = _LABEL
    if kwargs.get("mmap") or (kwargs.get("mmap") is None and _maps_by_default()):
        label = "torch.load(mmap=True)"
    elif str(place) != "cpu" if place is not None else found is not None and found.files[0].on_device:
        label = "torch.load(map_location=device)"
    return begin(keeper, Work(label=label, path=path, expected=expected))


def _file_of(stream: Any) -> object:  # noqa: ANN401 - whatever the host reads from
    """Give the name of the file that a stream reads; a member of an archive has a name and is no file."""
    try:
        stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return getattr(stream, "name", None)


def _length(data: io.BytesIO) -> int:
    """Give its length by seeking. `getbuffer` would copy all of it where it still shares the bytes it was made of."""
    position = data.tell()
    length = data.seek(0, io.SEEK_END)
    data.seek(position)
    return length


def _maps_by_default() -> bool:
    """Whether torch was told to map files unless a call says otherwise (torch.utils.serialization.config)."""
    config: Any = sys.modules.get("torch.utils.serialization.config")
    return bool(config is not None and getattr(config.load, "mmap", False))


def _item(record: str) -> str:
    name = _tensor_name(sys._getframe(2))  # noqa: SLF001 - the stack of the host's call
    return record if name is None else f"{name} ({record})"


def _tensor_name(frame: FrameType | None) -> str | None:
    """Give the dictionary key that waits on the unpickler's stack for the tensor that is being rebuilt."""
    for _ in range(_FRAMES_TO_UNPICKLER):
        if frame is None:
            return None
        if frame.f_code.co_filename.endswith(_UNPICKLER):
            for stack in reversed(frame.f_locals["self"].metastack):
                if len(stack) > 1 and callable(stack[-1]) and isinstance(stack[-2], str):
                    return str(stack[-2])
            return None
        frame = frame.f_back
    return None
