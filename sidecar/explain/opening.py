"""Opens what is to be explained: unpacks it, turns it into UTF-8, and refuses what is no text.

Windows' PowerShell writes UTF-16 with a byte order mark where `>` stands behind a command.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import IO, Final, Protocol


class Readable(Protocol):
    """Bytes, read in pieces."""

    def read(self, size: int, /) -> bytes:
        """Give at most about so many bytes, none only at the end."""
        ...


class InputError(Exception):
    """An input that cannot be read: the text names it and says why."""


class Source(Readable, Protocol):
    """Bytes whose first ones can be looked at before they are read: a file, a pipe, what an unpacker gives."""

    def peek(self, size: int, /) -> bytes:
        """Give the next bytes, one at least but at the end, and leave them to be read."""
        ...


def _gzip(file: IO[bytes]) -> tuple[Source, type[Exception]]:
    import gzip
    import zlib

    return gzip.GzipFile(fileobj=file), zlib.error


def _bzip2(file: IO[bytes]) -> tuple[Source, type[Exception]]:
    import bz2

    return bz2.BZ2File(file), EOFError


def _xz(file: IO[bytes]) -> tuple[Source, type[Exception]]:
    import lzma

    return lzma.LZMAFile(file), lzma.LZMAError


_PACKED: Final = ((b"\x1f\x8b", "gzip", _gzip), (b"BZh", "bzip2", _bzip2), (b"\xfd7zXZ\x00", "xz", _xz))
"""How each is opened, and what it raises beside OSError and EOFError. A Python may be built without one of them."""
_NO_TEXT: Final = (
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "packed by zstd; unpack it first (zstd -d)"),
    (b"LPKSHHRH", "a journal in its binary form; write it as text first (journalctl --file NAME)"),
    (b"SQLite format 3\x00", "a database; of a sidecar's record `oomguard report` tells"),
    (b"\x7fELF", "a program or a core dump, no text"),
)
_WIDE: Final = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Of two marks that begin alike the longer one comes first."""
_LONGEST_MARK: Final = 16


@contextmanager
def opened(name: str, file: BufferedReader) -> Iterator[Readable]:
    """Give the text in a file as UTF-8. Reads on only, as it may be a pipe. Raises InputError where it is no text."""
    head = file.peek(_LONGEST_MARK)
    packed = next(((kind, opener) for mark, kind, opener in _PACKED if head.startswith(mark)), None)
    if packed is None:
        yield _decoded(name, file)
        return
    kind, opener = packed
    try:
        plain, damage = opener(file)
    except ImportError as exc:
        raise InputError(f"{name}: this Python cannot unpack {kind}; unpack it first") from exc
    try:
        yield _decoded(name, plain)
    except (OSError, EOFError, damage) as exc:
        if isinstance(exc, OSError) and exc.strerror:
            raise
        raise InputError(f"{name}: damaged {kind} data") from exc


def _decoded(name: str, file: Source) -> Readable:
    head = file.peek(_LONGEST_MARK)
    for mark, what in _NO_TEXT:
        if head.startswith(mark):
            raise InputError(f"{name}: this is {what}")
    if head.startswith(codecs.BOM_UTF8):
        file.read(len(codecs.BOM_UTF8))
    wide = next(((mark, encoding) for mark, encoding in _WIDE if head.startswith(mark)), None)
    if wide is None:
        return file
    file.read(len(wide[0]))
    return _Recoded(file, wide[1])


class _Recoded:
    """Reads another encoding as UTF-8."""

    def __init__(self, file: Readable, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int, /) -> bytes:
        """Give about so many bytes, none only at the end."""
        while raw := self._file.read(size):
            if text := self._decoder.decode(raw):
                return text.encode("utf-8", "replace")
        return self._decoder.decode(b"", final=True).encode("utf-8", "replace")
