"""GPU samples for pure tests."""

from __future__ import annotations

from guard.model import Known, Reading, Unknown, Why
from sidecar.sample import GpuCard, GpuLoad, GpuMemory, GpuProcess, GpuSample, GpuSlice, GpuXid, Instant

MIB = 1 << 20
AT = Instant(10.0, 1_760_000_000.0)
LOST = Unknown(Why.GONE, "nvmlDeviceGetHandleByIndex", 15, "GPU is lost")


def memory(used: int, total: int = 8192 * MIB) -> Reading[GpuMemory]:
    """Make a memory reading with 256 MiB reserved."""
    reserved = 256 * MIB
    return Known(
        GpuMemory(
            total_bytes=total, used_bytes=used, free_bytes=total - used - reserved, reserved_bytes=Known(reserved)
        )
    )


def card(index: int = 0, *, used: int = 1024 * MIB, xids: dict[int, int] | None = None) -> GpuCard:
    """Make a card with one process and one slice."""
    held = Known((GpuProcess(4242, Known(used)),))
    return GpuCard(
        index=index,
        uuid=Known(f"GPU-{index}"),
        name=Known("Pretend GPU"),
        lost=Known(value=False),
        memory=memory(used),
        load=Known(GpuLoad(0.37, 0.1)),
        temperature_celsius=Known(40),
        processes=held,
        slices=Known((GpuSlice(index=2, uuid=Known("MIG-2"), memory=memory(MIB, 2048 * MIB), processes=Known(())),)),
        xids=Known(tuple(GpuXid(code, count, AT) for code, count in (xids or {}).items())),
    )


def lost_card(index: int = 0, *, xids: dict[int, int] | None = None) -> GpuCard:
    """Make a card that does not answer any more."""
    return GpuCard(
        index=index,
        uuid=LOST,
        name=LOST,
        lost=Known(value=True),
        memory=LOST,
        load=LOST,
        temperature_celsius=LOST,
        processes=LOST,
        slices=LOST,
        xids=card(index, xids=xids).xids,
    )


def sample(*cards: GpuCard) -> Reading[GpuSample]:
    """Make a reading of all cards."""
    return Known(GpuSample(at=AT, driver=Known("580.65.06"), cards=cards))
