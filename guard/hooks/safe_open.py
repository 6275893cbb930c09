"""Owner of `safetensors.safe_open`: the file, tensor and byte in flight.

How: `safe_open` is a type made in Rust. It cannot be subclassed, and a proxy in its place would break `isinstance`
and miss everybody who imported the name before. Its attributes can be set, though (0.4 to 0.8), so the methods on
the type itself are wrapped: every instance is seen, whoever imported the name and when. `__new__` cannot be wrapped
(its slot calls back into itself), so the file name is caught in `__init__`, which the type inherits as a no-op from
object.

A mark lives from `__enter__` to `__exit__`; between, the item stays the tensor that was asked for last. Without a
`with` block a mark lives for one call, because nobody would end it. Where a load is in flight that the file belongs to
(`load_file`, `from_pretrained`), its mark is used and left to its owner.

A slice is a promise: `get_slice` reads nothing, `slice[...]` does, perhaps in another thread (transformers does so).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from guard.fence import fence
from guard.hooks.load_sizes import unseen
from guard.hooks.loads_in_flight import Load, Part, Work, absolute, begin, enclosing
from guard.hooks.patching import Finishable, Patches, marked
from guard.hooks.safetensors_header import Shard, read_shard

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from guard.keeper import Keeper

_LABEL: Final = "safetensors.safe_open"
_MOST_OPEN: Final = 256
"""Instances cannot be weakly referenced, so the oldest is forgotten past this number of files open at once."""
_MOST_SLICES: Final = 1 << 17
"""As many slices as tensors, until they are used. Some 100 bytes each."""


class _Opened:
    """What we know of one `safe_open` instance."""

    __slots__ = ("entered", "load", "owned", "path", "shard")

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.shard: Shard | None = None
        self.load: Load | None = None
        self.owned = False
        self.entered = False

    def size(self, name: str | None) -> int:
        """Bytes of a tensor, 0 where the header did not say."""
        return 0 if self.shard is None or name is None else self.shard.tensors.get(name, 0)

    def finish(self) -> None:
        """End the mark if it is ours."""
        load, self.load = self.load, None
        if load is not None and self.owned:
            load.finish()


class _Call:
    """One call on an instance. The mark ends with it where no `with` block will end it."""

    __slots__ = ("_ends", "name", "opened")

    def __init__(self, opened: _Opened, name: str | None = None, *, ends: bool) -> None:
        self.opened = opened
        self.name = name
        self._ends = ends

    def finish(self) -> None:
        if self._ends:
            self.opened.finish()


class _Watch:
    """The hook's state: instances and slices by identity."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._opened: dict[int, _Opened] = {}
        self._slices: dict[int, tuple[_Opened, str]] = {}
        self.wrap_slices: Callable[[type], None] | None = None

    def born(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        path = args[1] if len(args) > 1 else kwargs["filename"]
        self._forget(id(args[0]))  # of one that is gone: entered, and never left
        self._opened[id(args[0])] = _Opened(absolute(path))
        if len(self._opened) > _MOST_OPEN:
            self._forget(next(iter(self._opened)))

    def _forget(self, key: int) -> None:
        """Follow an instance no longer, and end its mark: nobody else would."""
        opened = self._opened.pop(key, None)
        if opened is not None:
            opened.finish()

    def enter(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        opened = self._opened.get(id(args[0]))
        if opened is not None:
            opened.entered = True
            self._mark(opened)

    def leave(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Finishable | None:
        opened = self._opened.pop(id(args[0]), None)
        return None if opened is None else _Call(opened, ends=True)

    def ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        opened = self._opened.get(id(args[0]))
        if opened is None:
            return None
        name = args[1] if len(args) > 1 else kwargs.get("name")
        load = self._mark(opened)
        if load is not None:
            load.turn(name, opened.size(name), opened.path)
        return _Call(opened, name, ends=not opened.entered)

    def ask_all(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Finishable | None:
        """One call reads every tensor: which one is in flight cannot be seen."""
        return self.ask(args[:1], {})

    def got_all(self, call: _Call, _result: object) -> None:
        load, shard = call.opened.load, call.opened.shard
        if load is not None and shard is not None and not load.copies:
            load.expect(shard.total_bytes or 0)

    def ask_slice(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finishable | None:
        opened = self._opened.get(id(args[0]))
        if opened is None:
            return None
        name = args[1] if len(args) > 1 else kwargs.get("name")
        if opened.entered or enclosing(self._keeper, opened.path) is not None:
            self._mark(opened)
        return _Call(opened, name, ends=False)

    def got_slice(self, call: _Call, result: object) -> None:
        if self.wrap_slices is not None:
            wrap, self.wrap_slices = self.wrap_slices, None
            wrap(type(result))
        if call.name is None:
            return
        self._slices[id(result)] = (call.opened, call.name)
        if len(self._slices) > _MOST_SLICES:
            del self._slices[next(iter(self._slices))]

    def read_slice(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Finishable | None:
        opened, name = self._slices.get(id(args[0]), (None, None))
        load = None if opened is None else opened.load
        if opened is None or load is None or load.ended:
            return None
        load.turn(name, 0, opened.path)
        return Part(load)

    def got_part(self, part: Part, result: Any) -> None:  # noqa: ANN401 - a tensor of any framework
        with unseen():
            part.load.expect(int(getattr(result, "nbytes", 0)))

    def _mark(self, opened: _Opened) -> Load | None:
        """Give the mark that this file's tensors are told under."""
        load = opened.load
        if load is not None and not load.ended and load.box is self._keeper.box:  # after a fork it is the parent's
            return load
        outer = enclosing(self._keeper, opened.path)
        if opened.shard is None:
            known = outer.shard if outer is not None and outer.path == opened.path else None
            opened.shard = known or (Shard(None, {}) if opened.path is None else read_shard(opened.path))
        opened.owned = outer is None
        if outer is None:
            outer = begin(
                self._keeper, Work(label=_LABEL, path=opened.path, expected=opened.shard.total_bytes, whole=False)
            )
        opened.load = outer
        return outer


def install(keeper: Keeper, module: ModuleType) -> Callable[[], None]:
    """Wrap the methods of the type, and of the type of its slices once there is one."""
    watch = _Watch(keeper)
    target = module.safe_open
    patches = Patches()

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, N807 - object's own takes no arguments
        with fence(_LABEL):
            watch.born((self, *args), kwargs)

    def wrap_slices(kind: type) -> None:
        original = getattr(kind, "__getitem__")  # noqa: B009 - the attribute of the type, not of an instance
        patches.set(kind, "__getitem__", marked(keeper, original, _LABEL, watch.read_slice, watch.got_part))

    if target.__init__ is not object.__init__:
        raise TypeError("safe_open has an __init__ of its own: this release of safetensors is not known")
    watch.wrap_slices = wrap_slices
    patches.set(target, "__init__", __init__)
    for name, begin_one, returned in (
        ("__enter__", watch.enter, None),
        ("__exit__", watch.leave, None),
        ("get_tensor", watch.ask, None),
        ("get_slice", watch.ask_slice, watch.got_slice),
        ("get_tensors", watch.ask_all, watch.got_all),
    ):
        if hasattr(target, name):  # get_tensors exists since 0.8
            patches.set(target, name, marked(keeper, getattr(target, name), _LABEL, begin_one, returned))
    return patches.undo
