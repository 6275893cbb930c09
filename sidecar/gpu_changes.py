"""What changed on the GPUs between two readings, as events. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from guard.model import Known, Reading, Unknown, Why
from sidecar.sample import GpuCard, GpuSample


@dataclass(frozen=True, slots=True)
class GpuChange:
    """One event: `kind` is gpu_lost, gpu_back or gpu_xid; `uuid` is None where the card has not told it."""

    kind: str
    text: str
    gpu: int
    uuid: str | None
    code: int | None = None
    count: int | None = None


def changes(before: Reading[GpuSample], after: Reading[GpuSample]) -> Iterator[GpuChange]:
    """Give what is new, card by card. A card that cannot be read for another reason is neither lost nor back."""
    if isinstance(after, Unknown):
        return
    old = {} if isinstance(before, Unknown) else {card.index: card for card in before.value.cards}
    for card in after.value.cards:
        was = old.get(card.index)
        uuid = _uuid(card) or (None if was is None else _uuid(was))
        name = f"GPU {card.index} ({uuid or 'unnamed'})"
        yield from _presence(was, card, name, uuid)
        for code, new in _new_xids(was, card).items():
            yield GpuChange("gpu_xid", f"{name}: Xid {code}", card.index, uuid, code, new)


def trouble(reading: Reading[GpuSample]) -> str | None:
    """Say what does not work, for the list of degraded things; None where all does, or there is no GPU to read."""
    if isinstance(reading, Unknown):
        absent = reading.why in (Why.MISSING, Why.NOT_SAMPLED)
        return None if absent else str(reading)
    for card in reading.value.cards:
        if isinstance(card.memory, Unknown):
            return f"GPU {card.index}: {card.memory}"
    return None


def _presence(was: GpuCard | None, card: GpuCard, name: str, uuid: str | None) -> Iterator[GpuChange]:
    lost_before = was is not None and isinstance(was.lost, Known) and was.lost.value
    if isinstance(card.lost, Unknown) or card.lost.value == lost_before:
        return
    if card.lost.value:
        yield GpuChange("gpu_lost", f"{name} is lost: it does not answer on the bus any more", card.index, uuid)
    else:
        yield GpuChange("gpu_back", f"{name} answers again", card.index, uuid)


def _new_xids(was: GpuCard | None, card: GpuCard) -> dict[int, int]:
    """Give how many of each code came since; nothing where the first reading is the first one at all."""
    if was is None or isinstance(card.xids, Unknown):
        return {}
    counted = {} if isinstance(was.xids, Unknown) else {xid.code: xid.count for xid in was.xids.value}
    new = {xid.code: xid.count - counted.get(xid.code, 0) for xid in card.xids.value}
    return {code: count for code, count in new.items() if count > 0}


def _uuid(card: GpuCard) -> str | None:
    return card.uuid.value if isinstance(card.uuid, Known) else None
