"""Packs parts into a tar.gz within a bound, and lists what is in it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO, Final

from sidecar.bundle.parts import PART_BYTES, Part, document

MOST_BYTES: Final = 20 << 20
"""Of the bundle: it can be attached where 25 MB are allowed."""
_ENOUGH: Final = MOST_BYTES - PART_BYTES - (1 << 20)  # no more is begun beyond; a part does not grow by packing


@dataclass(frozen=True, slots=True)
class Packed:
    """One file in the bundle. `size` before packing; None: left out, there was no room."""

    name: str
    about: str
    size: int | None


@dataclass(frozen=True, slots=True)
class Cover:
    """What the README says around the list. `wall_s`: when the bundle was made."""

    head: str
    wall_s: float


def pack(parts: Iterable[Part], file: BinaryIO, cover: Cover, progress: Callable[[int], None]) -> tuple[Packed, ...]:
    """Write the parts in their order, then the README and a manifest. Gives what is in it."""
    listed: list[Packed] = []
    counting = _Counting(file)
    with tarfile.open(fileobj=counting, mode="w|gz", format=tarfile.PAX_FORMAT) as archive:
        for part in parts:
            full = counting.written > _ENOUGH
            data = None if full else part.make()
            if data is not None:
                _add(archive, part.name, data, cover.wall_s)
            if full or data is not None:
                listed.append(Packed(part.name, part.about, None if data is None else len(data)))
            progress(1)
        _add(archive, "manifest.json", document(_manifest(listed)), cover.wall_s)
        _add(archive, "README.txt", f"{cover.head}\n{table(listed)}".encode(), cover.wall_s)
    return tuple(listed)


def table(listed: Iterable[Packed]) -> str:
    """List the files for people: name, size, what it is. Files of the tree are one line."""
    rows: dict[str, tuple[int | None, str, int]] = {}
    for one in listed:
        name = "tree/" if one.name.startswith("tree/") else one.name
        size, _, count = rows.get(name, (0, "", 0))
        rows[name] = (None if one.size is None or size is None else size + one.size, one.about, count + 1)
    lines = []
    for name, (size, about, count) in rows.items():
        told = "left out, no room" if size is None else f"{-(-size // 1024)} KiB"
        files = f"{count} files: " if name == "tree/" else ""
        lines.append(f"  {name:18} {told:>10}  {files}{about}\n")
    return "".join(lines)


def _manifest(listed: Iterable[Packed]) -> list[dict[str, object]]:
    return [{"name": one.name, "bytes": one.size, "about": one.about} for one in listed]


def _add(archive: tarfile.TarFile, name: str, data: bytes, wall_s: float) -> None:
    info = tarfile.TarInfo(f"oomguard-bundle/{name}")
    info.size, info.mode, info.mtime = len(data), 0o644, wall_s
    archive.addfile(info, io.BytesIO(data))


class _Counting(io.RawIOBase):
    """Counts what goes into a file, which may be a pipe; leaves it open, as it is not ours."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.written = 0

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Write and count."""
        self.written += memoryview(data).nbytes
        return self._file.write(data)
