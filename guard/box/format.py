"""The black box on disk: one fixed layout, and the codec between values and bytes. Pure; writer and reader share it.

A box must tell the truth after a SIGKILL at any instruction, on a full disk, and to a reader of another release.

    * One file a process, `SIZE` bytes from its first moment to its last. It never grows and is never truncated
      (a shorter file would kill the writer with SIGBUS).
    * The file is a prelude (magic, version, size) and cells at fixed places. A cell is one 8-byte *publish word* and
      one or two *buffers*. A buffer is `crc32 | length | sequence | payload`; the CRC covers all that follows it.
    * To write a cell: fill the buffer that the published word does not name, then store the new sequence in the word
      with one aligned 8-byte store. A kill before the store leaves the older record, a kill after it the newer one.
      (Without the word a plain record was seen torn by SIGKILL.) Sequence n lives in buffer n % copies; 0 is "never".
    * To read a cell: take the buffer whose sequence is the word's. A reader of a live box may find that buffer already
      overwritten; then one of the next two sequences is complete in the other buffer, or the cell is absent.
    * Damage is absence. Lengths that were read are compared with the fixed room, never used to allocate.

Rejected: one mmap on the reading side (a truncated file would kill the reader); a log that grows (ENOSPC at the worst
moment); JSON for operations (too slow for every tensor); msync (SIGKILL does not lose shared pages, only power does).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from guard.model import OperationKind

MAGIC: Final = b"OOMGBOX\x00"
MAJOR: Final = 1
"""Another major version is another layout and is not read."""
MINOR: Final = 0
"""A newer minor version adds fields at the end of payloads; older readers ignore them."""

PRELUDE: Final = struct.Struct("<8sHHI")  # magic, major, minor, size
WORD: Final = struct.Struct("<Q")
BUFFER_HEAD: Final = struct.Struct("<IIQ")  # crc32 of all that follows, payload length, sequence
BUFFER_BODY: Final = struct.Struct("<IQ")  # the part of the head that the CRC covers
WORD_ROOM: Final = 16  # the word, padded so that buffers are 16-byte aligned


@dataclass(frozen=True, slots=True)
class Cells:
    """A row of equal cells: `count` of them, `stride` bytes apart, each with `copies` buffers."""

    name: str
    offset: int
    count: int
    stride: int
    copies: int
    holds: str  # for docs/box-format.md

    @property
    def end(self) -> int:
        """First byte behind the row."""
        return self.offset + self.count * self.stride

    @property
    def buffer_room(self) -> int:
        """Bytes of one buffer, head included; a multiple of 8."""
        return (self.stride - WORD_ROOM) // self.copies // 8 * 8

    @property
    def payload_room(self) -> int:
        """The longest payload that fits."""
        return self.buffer_room - BUFFER_HEAD.size

    def cell(self, index: int) -> int:
        """Offset of one cell, which is the offset of its publish word."""
        return self.offset + index * self.stride

    def buffer(self, index: int, sequence: int) -> int:
        """Offset of the buffer in which a sequence lives."""
        return self.cell(index) + WORD_ROOM + sequence % self.copies * self.buffer_room


ABOUT: Final = Cells("about", 64, 1, 1984, 1, "JSON: life, parent session, release, creation time, model name, command")
SIGTERM: Final = Cells("sigterm", 2048, 1, 64, 1, "wall clock (ns) of the first SIGTERM")
EXIT: Final = Cells("exit", 2112, 1, 128, 2, "wall and monotonic clock (ns) and status of the orderly exit")
BEATS: Final = Cells("beats", 4096, 32, 192, 2, "one named counter a cell")
OPERATIONS: Final = Cells("operations", 10240, 32, 1024, 2, "one operation in flight, or the last finished one, a cell")
FAILURES: Final = Cells("failures", 45056, 4, 4096, 1, "JSON: one failure with its stack a cell")
LAYOUT: Final = (ABOUT, SIGTERM, EXIT, BEATS, OPERATIONS, FAILURES)
SIZE: Final = 61440
"""Of every box, in bytes; below 64 KiB, whole pages of 4 KiB."""

NONE: Final = -1
"""Stands for None in signed integer fields, which never hold negative values."""

OPERATION: Final = struct.Struct("<BBHHHHqqqqqq")
"""kind, done, lengths of label, file, thread, item; number, started, updated (ns), bytes done, expected, bound (ms)."""
LABEL_ROOM, FILE_ROOM, THREAD_ROOM, ITEM_ROOM = 96, 192, 32, 96
BEAT: Final = struct.Struct("<qqH")
"""count, time (monotonic ns), length of the name that follows."""
BEAT_NAME_ROOM: Final = 48
SIGTERM_MARK: Final = struct.Struct("<q")
EXIT_MARK: Final = struct.Struct("<qqqB")
"""wall ns, monotonic ns, status, 1 if the status is known."""

KIND_CODES: Final = {OperationKind.LOAD: 1, OperationKind.MOVE: 2, OperationKind.BUSY: 3}


def encode_buffer(sequence: int, payload: bytes) -> bytes:
    """Bytes of one buffer, head and payload."""
    body = BUFFER_BODY.pack(len(payload), sequence) + payload
    return zlib.crc32(body).to_bytes(4, "little") + body


def read_cell(data: bytes, cells: Cells, index: int) -> tuple[int, bytes] | None:
    """Sequence and payload of one cell, or None where nothing whole was published."""
    at = cells.cell(index)
    if at + WORD.size > len(data):
        return None
    (word,) = WORD.unpack_from(data, at)
    if word == 0:
        return None
    for sequence in range(word, word + cells.copies + 1):
        payload = _read_buffer(data, cells, cells.buffer(index, sequence), sequence)
        if payload is not None:
            return sequence, payload
    return None


def _read_buffer(data: bytes, cells: Cells, at: int, sequence: int) -> bytes | None:
    """Payload of one buffer if it holds exactly this sequence and its checksum is right."""
    if at + BUFFER_HEAD.size > len(data):
        return None
    crc, length, found = BUFFER_HEAD.unpack_from(data, at)
    end = at + BUFFER_HEAD.size + length
    if found != sequence or length > cells.payload_room or end > len(data):
        return None
    if zlib.crc32(data[at + 4 : end]) != crc:
        return None
    return data[at + BUFFER_HEAD.size : end]


def fit_head(text: str, room: int) -> bytes:
    """UTF-8 of a text, its beginning kept where it is too long."""
    raw = _encoded(text)
    return raw if len(raw) <= room else _whole(raw[: room - 3]) + "…".encode()


def fit_tail(text: str, room: int) -> bytes:
    """UTF-8 of a text, its end kept where it is too long: the end of a path or tensor name tells most."""
    raw = _encoded(text)
    return raw if len(raw) <= room else "…".encode() + _whole(raw[len(raw) - room + 3 :])


def _encoded(text: str) -> bytes:
    """UTF-8; a lone surrogate (of a file name that is none) is spelt out."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def _whole(raw: bytes) -> bytes:
    """Without characters that a cut has torn."""
    return raw.decode("utf-8", "ignore").encode()
