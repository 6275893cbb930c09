"""Reading a black box from bytes: pure, total, and without trust. Whoever reads a file uses `read`, never mmap."""

from __future__ import annotations

from collections.abc import Iterator

from guard.box import format as layout
from guard.box import texts
from guard.model import (
    Beat,
    BoxState,
    ExitMark,
    Failure,
    Known,
    Operation,
    Reading,
    Unknown,
    Why,
)

_KINDS = {code: kind for kind, code in layout.KIND_CODES.items()}


def parse_box(data: bytes, where: str) -> Reading[BoxState]:
    """Everything that a box says.

    Args:
        data: the whole file; of a longer one only the first `format.SIZE` bytes count, in a shorter one the cells
            behind the end are absent.
        where: for messages.

    Returns:
        The state, its operations in the order they began and its failures by time; or Unknown: UNSUPPORTED for another
        major version, MALFORMED where it is no box or does not say whose it is.
    """
    data = data[: layout.SIZE]
    if len(data) < layout.PRELUDE.size:
        return Unknown(Why.MALFORMED, where, None, f"{len(data)} bytes are no black box")
    magic, major, _minor, size = layout.PRELUDE.unpack_from(data)
    if magic != layout.MAGIC:
        return Unknown(Why.MALFORMED, where, None, "no black box")
    if major != layout.MAJOR:
        return Unknown(Why.UNSUPPORTED, where, None, f"black box version {major}, this reads {layout.MAJOR}")
    owner = next((texts.decode_about(payload) for payload in _payloads(data, layout.ABOUT)), None)
    if owner is None or size != layout.SIZE:
        return Unknown(Why.MALFORMED, where, None, "the head of the black box is damaged")
    return Known(
        BoxState(
            life=owner.life,
            parent_session=owner.about.parent_session,
            release=owner.about.release,
            created_wall_s=owner.created_wall_s,
            command=owner.about.command,
            name=owner.about.name,
            operations=_operations(data),
            beats=_beats(data),
            failures=_failures(data),
            sigterm_wall_s=_sigterm(data),
            exit_mark=_exit(data),
        )
    )


def _payloads(data: bytes, cells: layout.Cells) -> Iterator[bytes]:
    """The payloads of a row's whole cells."""
    for index in range(cells.count):
        found = layout.read_cell(data, cells, index)
        if found is not None:
            yield found[1]


def _operations(data: bytes) -> tuple[Operation, ...]:
    """Operations by the number that `begin` gave them."""
    found = [parsed for payload in _payloads(data, layout.OPERATIONS) if (parsed := _operation(payload)) is not None]
    return tuple(operation for _, operation in sorted(found, key=lambda pair: pair[0]))


def _operation(payload: bytes) -> tuple[int, Operation] | None:
    """Number and operation of one payload; None for a kind that this release does not know, or texts too short."""
    if len(payload) < layout.OPERATION.size:
        return None
    kind, done, *lengths, number, started, updated, bytes_done, expected, bound = layout.OPERATION.unpack_from(payload)
    parts = _split(payload[layout.OPERATION.size :], lengths)
    if parts is None or kind not in _KINDS:
        return None
    label, file, thread, item = parts
    return number, Operation(
        kind=_KINDS[kind],
        label=label,
        file=file or None,
        item=item or None,
        bytes_done=_optional(bytes_done),
        bytes_expected=_optional(expected),
        started_monotonic_s=started / 1e9,
        updated_monotonic_s=updated / 1e9,
        at_most_seconds=None if bound < 0 else bound / 1000,
        thread=thread,
        done=bool(done),
    )


def _split(raw: bytes, lengths: list[int]) -> list[str] | None:
    """Texts that lie one behind the other, or None where they would end behind the payload."""
    if sum(lengths) > len(raw):
        return None
    texts_found, at = [], 0
    for length in lengths:
        texts_found.append(raw[at : at + length].decode("utf-8", "replace"))
        at += length
    return texts_found


def _optional(value: int) -> int | None:
    """A signed field that uses a negative number for None."""
    return None if value < 0 else value


def _beats(data: bytes) -> tuple[Beat, ...]:
    """Counters in the order of their first beat."""
    beats = []
    for payload in _payloads(data, layout.BEATS):
        if len(payload) >= layout.BEAT.size:
            count, at, length = layout.BEAT.unpack_from(payload)
            name = _split(payload[layout.BEAT.size :], [length])
            if name is not None:
                beats.append(Beat(name=name[0], count=count, at_monotonic_s=at / 1e9))
    return tuple(beats)


def _failures(data: bytes) -> tuple[Failure, ...]:
    """Failures by time."""
    found = [texts.decode_failure(payload) for payload in _payloads(data, layout.FAILURES)]
    return tuple(sorted((item for item in found if item is not None), key=lambda item: item.at_monotonic_s))


def _sigterm(data: bytes) -> float | None:
    """Wall time of the first SIGTERM."""
    for payload in _payloads(data, layout.SIGTERM):
        if len(payload) >= layout.SIGTERM_MARK.size:
            return float(layout.SIGTERM_MARK.unpack_from(payload)[0] / 1e9)
    return None


def _exit(data: bytes) -> ExitMark | None:
    """The orderly exit."""
    for payload in _payloads(data, layout.EXIT):
        if len(payload) >= layout.EXIT_MARK.size:
            wall, monotonic, status, known = layout.EXIT_MARK.unpack_from(payload)
            return ExitMark(wall / 1e9, monotonic / 1e9, status if known else None)
    return None
