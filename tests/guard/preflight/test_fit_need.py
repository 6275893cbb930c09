"""The arithmetic of a preflight, and its answers."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from guard.fit.need import CannotSayError, Need, cheaper, need
from guard.fit.paths import BOOKKEEPING_BYTES, IMPORT_BYTES, PATHS, default_path, paths_for
from guard.fit.rooms import Room, binding
from guard.fit.values import Answer, Card, Preflight
from guard.footprint import Footprint, Format, WeightFile
from guard.model import UNLIMITED, Known, Limit, Reading, Unknown, Why

GIB = 1 << 30
NO_ANSWER = Unknown(Why.DENIED, "memory.max")


def _found(format_: Format = Format.SAFETENSORS, dtype: str | None = "BF16") -> Footprint:
    by_dtype = MappingProxyType({} if dtype is None else {dtype: GIB})
    file = WeightFile(path="/m", format=format_, file_bytes=GIB, tensor_bytes=GIB, by_dtype=by_dtype)
    return Footprint("/m", (file,))


def _need(found: Footprint, path: str, dtype: str | None = None, *, on_device: bool = False) -> Need:
    return need(found, PATHS[path], dtype=dtype, on_device=on_device, import_bytes=0)


@pytest.mark.parametrize(
    ("path", "dtype", "anon", "mapped"),
    [
        ("safetensors.torch.load_file", None, 0, 1),
        ("safetensors.torch.load_file + load_state_dict", None, 1, 1),
        ("safetensors.torch.load_file + load_state_dict", "F32", 2, 1),
        ("safetensors.torch.load", None, 2, 0),
        ("transformers.from_pretrained", None, 0, 1),
        ("transformers.from_pretrained", "BF16", 0, 1),
        ("transformers.from_pretrained", "F32", 2, 1),
    ],
)
def test_multiples(path: str, dtype: str | None, anon: int, mapped: int) -> None:
    """What a path costs follows from bytes as stored, and from bytes as wanted where types differ."""
    said = _need(_found(), path, dtype)
    assert (said.anon_bytes, said.mapped_bytes) == (anon * GIB + BOOKKEEPING_BYTES, mapped * GIB)


def test_a_stream_to_a_card_leaves_the_host_alone() -> None:
    """A path that hands each tensor to the device keeps none on the host; one that loads first does."""
    streamed = _need(_found(), "transformers.from_pretrained", "F32", on_device=True)
    loaded = _need(_found(), "safetensors.torch.load_model", on_device=True)
    assert (streamed.anon_bytes, loaded.anon_bytes) == (BOOKKEEPING_BYTES, GIB + BOOKKEEPING_BYTES)


def test_unknown_type_stays_unknown() -> None:
    """Where the headers do not say which type is stored, no size in another type is made up."""
    with pytest.raises(CannotSayError):
        _need(_found(Format.PICKLE, None), "torch.load", "F32")


def test_cheaper_paths_come_cheapest_first() -> None:
    """Advice names only paths that read this format and need less."""
    zipped, legacy = _found(Format.TORCH_ZIP), _found(Format.PICKLE, None)
    path = PATHS["torch.load(BytesIO)"]
    here = need(zipped, path, dtype=None, on_device=False, import_bytes=0)
    names = [name for name, _ in cheaper(zipped, path, here, dtype=None)]
    assert names == ["torch.load(mmap=True) + assign", "torch.load(mmap=True)", "torch.load"]
    assert [name for name, _ in cheaper(legacy, path, here, dtype=None)] == ["torch.load"]


def test_the_table_is_whole() -> None:
    """Every advice and every default names a path that exists and reads the format; every library has an import."""
    for path in PATHS.values():
        assert path.library in IMPORT_BYTES
        for name in path.cheaper:
            assert PATHS[name].formats & path.formats
    for format_ in Format:
        assert default_path(_found(format_)).name in paths_for(_found(format_))


def _preflight(*rooms: Reading[Limit], card: Reading[Limit] | None = None) -> Preflight:
    return Preflight(
        checkpoint="/m",
        format="safetensors",
        file_count=1,
        tensor_bytes=GIB,
        path="torch.load",
        path_note="",
        need=Need(anon_bytes=GIB, mapped_bytes=0, import_bytes=0, terms=("1024 MiB x 1 as stored",)),
        rooms=tuple(Room(f"room {i}", left) for i, left in enumerate(rooms)),
        card=None if card is None else Card(need_bytes=GIB, context_bytes=0, room=Room("cuda:0", card)),
    )


@pytest.mark.parametrize(
    ("asked", "answer", "fits"),
    [
        (_preflight(Known(GIB), Known(UNLIMITED)), Answer.FITS, True),
        (_preflight(Known(GIB - 1), Known(UNLIMITED)), Answer.WOULD_NOT_FIT, False),
        (_preflight(NO_ANSWER, Known(UNLIMITED)), Answer.CANNOT_TELL, None),
        (_preflight(NO_ANSWER, Known(-5)), Answer.WOULD_NOT_FIT, False),
        (_preflight(Known(2 * GIB), card=Known(GIB - 1)), Answer.WOULD_NOT_FIT, False),
        (_preflight(Known(2 * GIB), card=NO_ANSWER), Answer.CANNOT_TELL, None),
        (_preflight(Known(2 * GIB), card=Known(GIB)), Answer.FITS, True),
    ],
    ids=["just-fits", "a-byte-short", "unknown", "short-somewhere", "card-too-small", "card-unknown", "both-fit"],
)
def test_answers(asked: Preflight, answer: Answer, fits: bool | None) -> None:  # noqa: FBT001 - a parameter of the test
    """One place that is too small decides; what is unknown is neither enough nor too little."""
    assert (asked.answer, asked.fits) == (answer, fits)


def test_the_arithmetic_is_shown() -> None:
    """People see the sum, every room, the least of them, and what is not known."""
    text = str(_preflight(Known(5 * GIB), Known(2 * GIB), Known(UNLIMITED), NO_ANSWER))
    assert "1024 MiB that cannot be reclaimed = 1024 MiB x 1 as stored" in text
    assert "2048 MiB in room 1  <- the least" in text
    assert "no limit in room 2" in text
    assert "unknown (memory.max: denied) in room 3" in text


def test_binding_is_the_least_room() -> None:
    """Not the smallest limit counts but the least that is left; without any limit there is none."""
    rooms = (Room("a", Known(7)), Room("b", Known(-1)), Room("c", NO_ANSWER))
    assert binding(rooms) == rooms[1]
    assert binding((Room("a", Known(UNLIMITED)),)) is None
