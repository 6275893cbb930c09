"""The common part of hooks on libraries that load a whole checkpoint in one call."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from guard.hooks.load_sizes import sizes
from guard.hooks.loads_in_flight import Load, Part, Work, absolute, begin, completed, enclosing
from guard.hooks.patching import Finishable, Patches, marked

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.footprint import Footprint
    from guard.keeper import Keeper

    Args = tuple[Any, ...]
    Kwargs = dict[str, Any]
    Begin = Callable[[Args, Kwargs], Finishable | None]


def begin_call(
    keeper: Keeper, source: object, work: Work, surely: Callable[[Footprint], int | None] | None = None
) -> Load | Part | None:
    """Open the mark of a call on a file or folder, or tell the load that it belongs to.

    Args:
        keeper: the guard's state.
        source: a path, or anything else: then there is no file to tell.
        work: what is marked; path and sizes are filled in.
        surely: host memory that the call takes in any case, where the cost of its label is not all.
    """
    path = absolute(source)
    outer = enclosing(keeper, path)
    if outer is not None:
        if path != outer.path:
            outer.turn(work.label, 0, path)
        return Part(outer)
    found, expected = sizes(path)
    need = None if surely is None or found is None else surely(found)
    return begin(keeper, replace(work, path=path, expected=expected, surely=need))


def argument(args: Args, kwargs: Kwargs, position: int, name: str) -> Any:  # noqa: ANN401 - whatever the host gives
    """Give one argument of a call, None if it is not there."""
    return args[position] if len(args) > position else kwargs.get(name)


def local_folder(source: object, revision: object = None) -> object:
    """Give the folder of a repository that the Hugging Face cache has; anything else as it is."""
    if not isinstance(source, str) or os.path.exists(source):  # noqa: PTH110 - no path object is made of a host's name
        return source
    from guard.footprint.hub import cached

    return cached(source, revision if isinstance(revision, str) else "main")


def in_subfolder(folder: object, part: object) -> object:
    """Give the folder in a folder that a call names; the folder itself where it names none."""
    if isinstance(folder, (str, os.PathLike)) and isinstance(part, str) and part:
        return os.path.join(folder, part)  # noqa: PTH118 - no path object is made of a host's name
    return folder


def wrap_classmethod(keeper: Keeper, patches: Patches, owner: Any, name: str, begin_one: Begin) -> None:  # noqa: ANN401
    """Wrap a class method; `begin_one` gets the class as its first argument."""
    original = vars(owner)[name]
    patches.set(owner, name, classmethod(marked(keeper, original.__func__, name, begin_one, completed)))
