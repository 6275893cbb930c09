"""Owner of `safetensors.safe_open`: the file, tensor and byte in flight.

How: `safe_open` is a type made in Rust. It cannot be subclassed, and a proxy in its place would break `isinstance`
and miss everybody who imported the name before. Its attributes can be set, though (0.4 to 0.8), so the methods on
the type itself are wrapped: every instance is seen, whoever imported the name and when. `__new__` cannot be wrapped
(its slot calls back into itself), so the file name is caught in `__init__`, which the type inherits as a no-op from
object.

A mark lives from `__enter__` to `__exit__`; between, the item stays the tensor that was asked for last, since what
the caller does with it (copy, cast, move) is the expensive part. Without a `with` block a mark lives for one call,
because nobody would end it. Where a mark for the same file is open in the thread (`load_file`), it is used and left
to its owner.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from guard.fence import fence
from guard.hooks.loads_in_flight import LoadMark, begin_load, current_load
from guard.hooks.patching import Finishable, Patches, marked
from guard.hooks.safetensors_header import Shard, read_shard

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper

_LABEL: Final = "safetensors.safe_open"
_MOST_OPEN: Final = 256
"""Instances cannot be weakly referenced, so the oldest is forgotten past this number of files open at once."""


class _Opened:
    """What we know of one `safe_open` instance."""

    __slots__ = ("bytes_done", "entered", "last", "mark", "path", "shard", "whole")

    def __init__(self, path: str) -> None:
        self.path = path
        self.shard: Shard | None = None
        self.mark: LoadMark | None = None
        self.entered = False
        self.last: str | None = None
        self.bytes_done = 0
        self.whole = False

    def ask(self, name: str | None) -> None:
        """The tensor asked for before is done with; this one is in flight. None: no single one."""
        if self.shard is None or self.mark is None:
            return
        if self.last is not None:
            self.bytes_done += self.shard.tensors.get(self.last, 0)
        if self.whole:
            self.bytes_done = self.shard.total_bytes or 0
        self.last = name
        self.mark.progress(name, self.bytes_done)


class _OneCall:
    """A mark that ends with the call."""

    __slots__ = ("_opened",)

    def __init__(self, opened: _Opened) -> None:
        self._opened = opened

    def finish(self) -> None:
        opened = self._opened
        mark, opened.mark = opened.mark, None
        if mark is not None:
            mark.finish()


class _Watch:
    """The hook's state: instances by identity."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._opened: dict[int, _Opened] = {}

    def born(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        path = args[1] if len(args) > 1 else kwargs["filename"]
        self._opened.pop(id(args[0]), None)
        self._opened[id(args[0])] = _Opened(os.fsdecode(path))
        if len(self._opened) > _MOST_OPEN:
            del self._opened[next(iter(self._opened))]

    def enter(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        opened = self._opened.get(id(args[0]))
        if opened is not None:
            opened.entered = True
            self._mark(opened)

    def leave(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Finishable | None:
        opened = self._opened.pop(id(args[0]), None)
        if opened is None:
            return None
        opened.whole = opened.whole and args[1:2] == (None,)  # no exception came out of the block
        opened.ask(None)
        return _OneCall(opened)

    def ask_all(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        """One call reads every tensor; which one is in flight cannot be seen, and the bytes count at the end."""
        mark = self.ask(args[:1], kwargs)
        opened = self._opened.get(id(args[0]))
        if opened is not None:
            opened.whole = True
        return mark

    def ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        opened = self._opened.get(id(args[0]))
        if opened is None:
            return None
        self._mark(opened)
        opened.ask(args[1] if len(args) > 1 else kwargs.get("name"))
        return None if opened.entered else _OneCall(opened)

    def _mark(self, opened: _Opened) -> None:
        if opened.mark is not None:
            return
        shared = current_load(self._keeper, opened.path)
        if shared is not None:
            opened.shard = shared.shard
            opened.mark = shared.borrowed()
            return
        if opened.shard is None:
            opened.shard = read_shard(opened.path)
        opened.mark = begin_load(self._keeper, _LABEL, opened.path, opened.shard)


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the methods of the type."""
    watch = _Watch(keeper)
    target = module.safe_open
    patches = Patches()

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, N807 - object's own takes no arguments
        with fence(_LABEL):
            watch.born((self, *args), kwargs)

    if target.__init__ is not object.__init__:
        raise TypeError("safe_open has an __init__ of its own: this release of safetensors is not known")
    patches.set(target, "__init__", __init__)
    for name, begin in (
        ("__enter__", watch.enter),
        ("__exit__", watch.leave),
        ("get_tensor", watch.ask),
        ("get_slice", watch.ask),
        ("get_tensors", watch.ask_all),
    ):
        if hasattr(target, name):  # get_tensors exists since 0.8
            patches.set(target, name, marked(keeper, getattr(target, name), _LABEL, begin))
    return patches.undo
