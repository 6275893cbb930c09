"""What a load needs, pure: bytes of the checkpoint times the costs of its path."""

from __future__ import annotations

from dataclasses import dataclass

from guard.fit.paths import BOOKKEEPING_BYTES, PATHS, LoadPath
from guard.fit.units import human
from guard.footprint.values import Footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes that a load takes at its peak. `anon_bytes` must fit below the limit; `mapped_bytes` can be reclaimed."""

    anon_bytes: int
    mapped_bytes: int
    import_bytes: int  # of the library, part of anon_bytes
    terms: tuple[str, ...]  # the sum in words


class CannotSayError(ValueError):
    """The headers do not say enough for this question."""


def need(found: Footprint, path: LoadPath, *, dtype: str | None, on_device: bool, import_bytes: int) -> Need:
    """Work out what loading takes in host memory.

    Args:
        found: the checkpoint.
        path: how it is loaded.
        dtype: element type wanted in the end, by the names of safetensors; None: as stored.
        on_device: whether the tensors end up on a GPU.
        import_bytes: what importing the library will still take.

    Raises:
        CannotSayError: another type is wanted, and the headers do not say which one is stored.
    """
    stored = found.tensor_bytes
    wanted = wanted_bytes(found, dtype)
    stays = not (on_device and path.streams)
    terms = []
    total = 0.0
    for factor, size, words in (
        (path.stored, stored, "as stored"),
        (path.wanted if stays else 0.0, wanted, "for the model's own tensors"),
        (path.converted if stays and _converts(found, dtype) else 0.0, wanted, f"converted to {dtype}"),
    ):
        if factor:
            total += factor * size
            terms.append(f"{human(size)} x {factor:g} {words}")
    terms.append(f"{human(BOOKKEEPING_BYTES)} bookkeeping")
    if import_bytes:
        terms.append(f"{human(import_bytes)} to import {path.library}")
    return Need(
        anon_bytes=int(total) + BOOKKEEPING_BYTES + import_bytes,
        mapped_bytes=int(path.mapped * stored),
        import_bytes=import_bytes,
        terms=tuple(terms),
    )


def wanted_bytes(found: Footprint, dtype: str | None) -> int:
    """Bytes of the tensors in the wanted type. Raises `CannotSayError` where the headers do not say the stored one."""
    size = found.bytes_as(dtype)
    if size is None:
        raise CannotSayError(f"{found.path}: the headers of a {found.format} do not say its element types")
    return size


def cheaper(found: Footprint, path: LoadPath, here: Need, *, dtype: str | None) -> tuple[tuple[str, int], ...]:
    """Name other paths for the same files that need less, and how much, cheapest first."""
    others = [
        (name, need(found, PATHS[name], dtype=dtype, on_device=False, import_bytes=here.import_bytes).anon_bytes)
        for name in path.cheaper
        if found.format in PATHS[name].formats
    ]
    return tuple(sorted(((name, size) for name, size in others if size < here.anon_bytes), key=lambda one: one[1]))


def _converts(found: Footprint, dtype: str | None) -> bool:
    """Tell whether some tensor has to change its type."""
    return dtype is not None and any(set(file.by_dtype) - {dtype} for file in found.files)
