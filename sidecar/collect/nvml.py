"""NVML as readings: one session with the driver, through NVIDIA's own binding (the module `pynvml` of nvidia-ml-py).

Everything here may block for as long as the driver likes, so it runs in the thread of `sidecar.collect.gpu`. The
binding takes 5 MiB and is imported once there is a library to bind.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from guard.model import Known, Reading, Unknown, Why
from sidecar.sample import GpuCard, GpuLoad, GpuMemory, GpuProcess, GpuSample, GpuSlice, GpuXid, Instant

LIBRARY: Final = "libnvidia-ml.so.1"
Xids: TypeAlias = dict[int, dict[int, GpuXid]]
"""By index of the card, then by code. Belongs to the caller: it outlives a session."""

_MOST_SLICES: Final = 16  # NVML says at most 7 today
_WHY: Final[Mapping[int, Why]] = {  # nvml.h, nvmlReturn_t
    1: Why.GONE,  # uninitialized: the driver was restarted under us
    3: Why.UNSUPPORTED,
    4: Why.DENIED,
    6: Why.MISSING,  # not found
    9: Why.MISSING,  # driver not loaded
    12: Why.MISSING,  # library not found
    13: Why.UNSUPPORTED,  # an older driver lacks the function
    15: Why.GONE,  # the card is lost
    25: Why.UNSUPPORTED,  # an older driver does not know this version of a structure
}
_GPU_IS_LOST: Final = 15
_TIMEOUT: Final = 10
_REOPEN: Final = frozenset({1, 9, 15, 18})  # after a restart of the driver only a new session sees the card again


def library_missing() -> Unknown | None:
    """Say why NVML cannot be loaded at all; None where it can."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as exc:
        return Unknown(Why.MISSING, LIBRARY, detail=str(exc)[:200])
    return None


class Session:
    """A session with the driver. `now_in` names the call that is being waited for, empty between calls."""

    def __init__(self, now: Callable[[], Instant], xids: Xids) -> None:
        import pynvml  # 5 MiB, and useless without a card

        self._nvml: Any = pynvml
        self._now = now
        self.now_in = ""
        self.broken = False
        """Whether the driver said something after which only a new session helps."""
        self._xids = xids
        self._card_of: dict[int | None, int] = {}
        self._listening: dict[int, Reading[None]] = {}
        self._events: Any = None

    def open(self) -> Unknown | None:
        """Begin; why not, where the driver is absent."""
        opened = self._ask("nvmlInit")
        if isinstance(opened, Unknown):
            return opened
        made = self._ask("nvmlEventSetCreate")
        self._events = made.value if isinstance(made, Known) else None
        return None

    def close(self) -> None:
        """End the session; what the driver says to that is nothing to us."""
        if self._events is not None:
            self._ask("nvmlEventSetFree", self._events)
            self._events = None
        self._ask("nvmlShutdown")

    def read(self) -> Reading[GpuSample]:
        """Read every card."""
        at = self._now()
        count = self._ask("nvmlDeviceGetCount")
        if isinstance(count, Unknown):
            self.broken = True
            return count
        cards = tuple(self._card(index) for index in range(count.value))
        return Known(GpuSample(at=at, driver=self._text("nvmlSystemGetDriverVersion"), cards=cards))

    def wait(self, seconds: float) -> bool:
        """Wait for an Xid; false where that cannot be waited for, or is not worth it."""
        if self._events is None or not any(isinstance(one, Known) for one in self._listening.values()):
            return False
        happened = self._ask("nvmlEventSetWait_v2", self._events, int(seconds * 1000))
        if isinstance(happened, Unknown):
            return happened.errno == _TIMEOUT
        index = self._card_of.get(_address(happened.value.device))
        if index is not None:
            code = int(happened.value.eventData)
            tally = self._xids.setdefault(index, {})
            before = tally.get(code)
            tally[code] = GpuXid(code, 1 if before is None else before.count + 1, self._now())
        return True

    def _card(self, index: int) -> GpuCard:
        handle = self._ask("nvmlDeviceGetHandleByIndex", index)
        if isinstance(handle, Unknown):
            return _unseen(index, handle, self._xids_of(index))
        card = handle.value
        self._listen(index, card)
        memory = self._memory(card)
        return GpuCard(
            index=index,
            uuid=self._text("nvmlDeviceGetUUID", card),
            name=self._text("nvmlDeviceGetName", card),
            lost=Known(_is_lost(memory)) if isinstance(memory, Known) or _is_lost(memory) else memory,
            memory=memory,
            load=self._load(card),
            temperature_celsius=self._ask("nvmlDeviceGetTemperature", card, self._nvml.NVML_TEMPERATURE_GPU),
            processes=self._processes(card),
            slices=self._slices(card),
            xids=self._xids_of(index),
        )

    def _memory(self, device: Any) -> Reading[GpuMemory]:  # noqa: ANN401 - the binding has no types
        second = self._ask("nvmlDeviceGetMemoryInfo", device, self._nvml.nvmlMemory_v2)
        if isinstance(second, Known):
            found = second.value
            return Known(_memory_of(found, Known(int(found.reserved))))
        if second.why is not Why.UNSUPPORTED:
            return second
        first = self._ask("nvmlDeviceGetMemoryInfo", device)  # drivers before 510
        return first if isinstance(first, Unknown) else Known(_memory_of(first.value, second))

    def _load(self, device: Any) -> Reading[GpuLoad]:  # noqa: ANN401
        rates = self._ask("nvmlDeviceGetUtilizationRates", device)
        return rates if isinstance(rates, Unknown) else Known(GpuLoad(rates.value.gpu / 100, rates.value.memory / 100))

    def _processes(self, device: Any) -> Reading[tuple[GpuProcess, ...]]:  # noqa: ANN401
        found: dict[int, GpuProcess] = {}
        for call in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            listed = self._ask(call, device)
            if isinstance(listed, Unknown):
                return listed
            for one in listed.value:
                used = one.usedGpuMemory
                hidden = Unknown(Why.HIDDEN, call, detail="the driver does not tell")
                found.setdefault(one.pid, GpuProcess(int(one.pid), hidden if used is None else Known(int(used))))
        return Known(tuple(found.values()))

    def _slices(self, card: Any) -> Reading[tuple[GpuSlice, ...]]:  # noqa: ANN401
        mode = self._ask("nvmlDeviceGetMigMode", card)
        if isinstance(mode, Unknown):
            return Known(()) if mode.why is Why.UNSUPPORTED else mode
        slices = []
        for index in range(_MOST_SLICES if mode.value[0] else 0):
            found = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", card, index)
            if isinstance(found, Known):
                piece = found.value
                uuid, memory = self._text("nvmlDeviceGetUUID", piece), self._memory(piece)
                slices.append(GpuSlice(index=index, uuid=uuid, memory=memory, processes=self._processes(piece)))
            elif found.why is not Why.MISSING:  # a gap is left where an instance was destroyed
                break
        return Known(tuple(slices))

    def _listen(self, index: int, card: Any) -> None:  # noqa: ANN401
        """Ask for the card's Xids, once a session."""
        if index in self._listening or self._events is None:
            return
        self._card_of[_address(card)] = index
        wanted = self._nvml.nvmlEventTypeXidCriticalError
        asked = self._ask("nvmlDeviceRegisterEvents", card, wanted, self._events)
        self._listening[index] = asked if isinstance(asked, Unknown) else Known(None)

    def _xids_of(self, index: int) -> Reading[tuple[GpuXid, ...]]:
        listening = self._listening.get(index, Unknown(Why.UNSUPPORTED, "nvmlEventSetCreate"))
        return listening if isinstance(listening, Unknown) else Known(tuple(self._xids.get(index, {}).values()))

    def _text(self, call: str, *arguments: Any) -> Reading[str]:  # noqa: ANN401
        """Ask for a text; the binding of before 2022 gives bytes."""
        said = self._ask(call, *arguments)
        if isinstance(said, Unknown):
            return said
        return Known(said.value.decode(errors="replace") if isinstance(said.value, bytes) else str(said.value))

    def _ask(self, call: str, *arguments: Any) -> Reading[Any]:  # noqa: ANN401
        """Make one call of NVML. `errno` of an `Unknown` is NVML's own number."""
        self.now_in = call
        try:
            return Known(getattr(self._nvml, call)(*arguments))
        except self._nvml.NVMLError as exc:
            number = int(exc.value)
            self.broken = self.broken or number in _REOPEN
            return Unknown(_WHY.get(number, Why.FAILED), call, number, str(exc))
        finally:
            self.now_in = ""


def _memory_of(found: Any, reserved: Reading[int]) -> GpuMemory:  # noqa: ANN401
    return GpuMemory(
        total_bytes=int(found.total), used_bytes=int(found.used), free_bytes=int(found.free), reserved_bytes=reserved
    )


def _is_lost(reading: Reading[object]) -> bool:
    return isinstance(reading, Unknown) and reading.errno == _GPU_IS_LOST


def _unseen(index: int, why: Unknown, xids: Reading[tuple[GpuXid, ...]]) -> GpuCard:
    return GpuCard(
        index=index,
        uuid=why,
        name=why,
        lost=Known(value=True) if _is_lost(why) else why,
        memory=why,
        load=why,
        temperature_celsius=why,
        processes=why,
        slices=why,
        xids=xids,
    )


def _address(handle: Any) -> int | None:  # noqa: ANN401
    return ctypes.cast(handle, ctypes.c_void_p).value
