"""The GPU rows of `/metrics`. A slice of a card (MIG) is a series of its own under the card, with `slice` set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from guard.model import Known, Reading
from sidecar.sample import GpuCard, GpuMemory, GpuProcess, GpuSample

Put: TypeAlias = Callable[[str, tuple[str, ...], float | None], None]


def put_gpus(put: Put, sample: GpuSample) -> None:
    """Put every card; what is not known has no series."""
    for card in sample.cards:
        uuid = card.uuid.value if isinstance(card.uuid, Known) else ""
        labels = (str(card.index), uuid)
        _card(put, labels, card)
        _use(put, (*labels, ""), card.memory, card.processes)
        for one in card.slices.value if isinstance(card.slices, Known) else ():
            _use(put, (*labels, str(one.index)), one.memory, one.processes)


def _card(put: Put, labels: tuple[str, ...], card: GpuCard) -> None:
    put("oomguard_gpu_lost", labels, _value(card.lost))
    put("oomguard_gpu_temperature_celsius", labels, _value(card.temperature_celsius))
    if isinstance(card.load, Known):
        put("oomguard_gpu_load_ratio", (*labels, "compute"), card.load.value.compute_ratio)
        put("oomguard_gpu_load_ratio", (*labels, "memory"), card.load.value.memory_ratio)
    for xid in card.xids.value if isinstance(card.xids, Known) else ():
        put("oomguard_gpu_xids", (*labels, str(xid.code)), xid.count)


def _use(
    put: Put, labels: tuple[str, ...], memory: Reading[GpuMemory], processes: Reading[tuple[GpuProcess, ...]]
) -> None:
    if isinstance(memory, Known):
        found = memory.value
        put("oomguard_gpu_memory_total_bytes", labels, found.total_bytes)
        put("oomguard_gpu_memory_used_bytes", labels, found.used_bytes)
        put("oomguard_gpu_memory_free_bytes", labels, found.free_bytes)
        put("oomguard_gpu_memory_reserved_bytes", labels, _value(found.reserved_bytes))
    for one in processes.value if isinstance(processes, Known) else ():
        put("oomguard_gpu_process_used_bytes", (*labels, str(one.pid)), _value(one.used_bytes))


def _value(reading: Reading[int] | Reading[bool]) -> float | None:
    return float(reading.value) if isinstance(reading, Known) else None
