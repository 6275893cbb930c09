"""Owner of `torch.load`: which file, how large. torch reads inside one call, so single tensors are not seen here."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the function where it is defined and where torch re-exports it."""

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        source = args[0] if args else kwargs.get("f")
        file, size = _about(source)
        return keeper.begin("load", "torch.load", file=file, bytes_expected=size)

    patches = Patches()
    original = module.load
    wrapper = marked(keeper, original, "torch.load", begin)
    patches.set(module, "load", wrapper)
    _exchange(original, wrapper)

    def undo() -> None:
        patches.undo()
        if module.load is original:
            _exchange(wrapper, original)

    return undo


def _exchange(old: object, new: object) -> None:
    """Follow in `torch.load`. While torch is being imported it is not there yet and takes what it finds later."""
    package: Any = sys.modules.get("torch")
    if getattr(package, "load", None) is old:
        package.load = new


def _about(source: object) -> tuple[str | None, int | None]:
    """Give name and size in bytes of a path, or of an open file that has a name; None for what it does not have."""
    path = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
    if not isinstance(path, (str, os.PathLike)):
        return None, None
    name = os.fspath(path)
    try:
        return name, os.stat(name).st_size  # noqa: PTH116 - no path object is made of a host's name
    except OSError:
        return name, None
