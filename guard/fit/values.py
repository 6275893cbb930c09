"""The answer of a preflight, with its arithmetic in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from guard.fit.need import Need
from guard.fit.rooms import Room, binding
from guard.fit.units import human
from guard.model import Known, Unlimited


class Answer(StrEnum):
    """Whether a load fits."""

    FITS = "fits"
    WOULD_NOT_FIT = "would not fit"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The GPU side of a question: what the tensors and a context take there, and what is left."""

    need_bytes: int
    context_bytes: int  # part of need_bytes: a CUDA context that is still to be made
    room: Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What a load will need at its peak, against what is left. All sizes in bytes."""

    checkpoint: str
    format: str
    file_count: int
    tensor_bytes: int
    path: str
    path_note: str
    need: Need
    rooms: tuple[Room, ...]
    card: Card | None = None
    cheaper: tuple[tuple[str, int], ...] = ()  # name and need of other paths for the same files, cheapest first

    @property
    def answer(self) -> Answer:
        """Whether it fits: not, as soon as one place is known to be too small; surely, only if all are known."""
        asked = [(self.need.anon_bytes, room) for room in self.rooms]
        if self.card is not None:
            asked.append((self.card.need_bytes, self.card.room))
        answers = {_fits(size, room) for size, room in asked}
        if Answer.WOULD_NOT_FIT in answers:
            return Answer.WOULD_NOT_FIT
        return Answer.CANNOT_TELL if Answer.CANNOT_TELL in answers else Answer.FITS

    @property
    def fits(self) -> bool | None:
        """`answer` as a boolean; None where it cannot be told."""
        return None if self.answer is Answer.CANNOT_TELL else self.answer is Answer.FITS

    def __str__(self) -> str:
        """The whole arithmetic, one fact a line."""
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Say it for people."""
        files = "" if self.file_count == 1 else f" in {self.file_count} files"
        yield f"{self.answer}: {self.checkpoint} by {self.path}"
        yield f"  checkpoint  {human(self.tensor_bytes)} of tensors{files}, {self.format}"
        yield f"  needs       {human(self.need.anon_bytes)} that cannot be reclaimed = {' + '.join(self.need.terms)}"
        if self.need.mapped_bytes:
            yield f"  maps        {human(self.need.mapped_bytes)} of the files, which the kernel can drop again"
        if self.path_note:
            yield f"  note        {self.path_note}"
        tightest = binding(self.rooms)
        for room in self.rooms:
            mark = "  <- the least" if room is tightest else ""
            yield f"  left        {_left(room)} in {room.where}{mark}"
        if self.card is not None:
            context = f", {human(self.card.context_bytes)} of it for a CUDA context" if self.card.context_bytes else ""
            yield f"  card needs  {human(self.card.need_bytes)}{context}"
            yield f"  card left   {_left(self.card.room)} in {self.card.room.where}"
        for name, size in self.cheaper:
            yield f"  cheaper     {human(size)} by {name}"

    def short(self) -> str:
        """Say it in one line, for a log."""
        tightest = binding(self.rooms)
        text = f"{self.answer}: {self.path} of {self.checkpoint} needs {human(self.need.anon_bytes)}"
        text += f" ({' + '.join(self.need.terms)})"
        if tightest is not None:
            text += f", {_left(tightest)} left in {tightest.where}"
        if self.card is not None:
            text += f"; the card needs {human(self.card.need_bytes)}, {_left(self.card.room)} left"
        if self.cheaper:
            name, size = self.cheaper[0]
            text += f"; {name} would need {human(size)}"
        return text

    def document(self) -> dict[str, Any]:
        """Give it as JSON."""
        return {
            "answer": self.answer.value,
            "checkpoint": self.checkpoint,
            "format": self.format,
            "files": self.file_count,
            "tensor_bytes": self.tensor_bytes,
            "path": self.path,
            "path_note": self.path_note,
            "need_anon_bytes": self.need.anon_bytes,
            "need_mapped_bytes": self.need.mapped_bytes,
            "need_terms": list(self.need.terms),
            "rooms": [_room(room) for room in self.rooms],
            "card": None
            if self.card is None
            else {
                "need_bytes": self.card.need_bytes,
                "context_bytes": self.card.context_bytes,
                **_room(self.card.room),
            },
            "cheaper": [{"path": name, "need_anon_bytes": size} for name, size in self.cheaper],
        }


def _fits(size: int, room: Room) -> Answer:
    left = room.left_bytes
    if not isinstance(left, Known):
        return Answer.CANNOT_TELL
    if isinstance(left.value, Unlimited) or size <= left.value:
        return Answer.FITS
    return Answer.WOULD_NOT_FIT


def _left(room: Room) -> str:
    left = room.left_bytes
    if not isinstance(left, Known):
        return f"unknown ({left})"
    return "no limit" if isinstance(left.value, Unlimited) else human(left.value)


def _room(room: Room) -> dict[str, Any]:
    left = room.left_bytes
    if not isinstance(left, Known):
        return {"where": room.where, "left_bytes": None, "unknown": str(left)}
    return {"where": room.where, "left_bytes": "unlimited" if isinstance(left.value, Unlimited) else left.value}
