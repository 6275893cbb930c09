"""Which processes hold memory of a card, by NVML, in the failing thread.

Only where NVML is in the process already: torch loads it for its own message and has asked the same question of it
microseconds ago (2.14.1), so ours takes as long and hangs as little. No library is loaded or initialised by us, and no
binding is needed for four C functions. Process ids are those of NVML's own namespace: in a container they may name
processes that cannot be seen from there, this one included.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Final

LIBRARY: Final = "libnvidia-ml.so.1"
_MOST: Final = 64
_SHOWN: Final = 6
_OK: Final = 0
_UNKNOWN_BYTES: Final = 2**64 - 1
"""What NVML answers for a process whose memory it may not tell (MIG, rights)."""


class _Process(ctypes.Structure):
    """nvmlProcessInfo_v2_t of NVML's public API, which v3 of the call still fills."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def holders(device: int) -> str:
    """Give "PID: BYTES" of a card's largest holders, and how many more there are; empty where it cannot be said."""
    try:
        nvml = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return ""
    handle = ctypes.c_void_p()
    bus_id = _bus_id(sys.modules["torch"].cuda.get_device_properties(device))
    if bus_id is None or nvml.nvmlDeviceGetHandleByPciBusId_v2(bus_id, ctypes.byref(handle)) != _OK:
        return ""
    count, found = ctypes.c_uint(_MOST), (_Process * _MOST)()
    if nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), found) != _OK:
        return ""
    told = [(one.pid, None if one.used == _UNKNOWN_BYTES else int(one.used)) for one in found[: count.value]]
    largest = sorted(told, key=lambda pair: pair[1] or 0, reverse=True)
    shown = [f"{pid}: {'?' if used is None else used}" for pid, used in largest[:_SHOWN]]
    more = len(largest) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _bus_id(properties: Any) -> bytes | None:  # noqa: ANN401 - torch is not imported for types
    """Spell the card's PCI address; None on torch before 2.9, which does not tell it."""
    try:
        domain, bus, slot = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
    except AttributeError:
        return None
    return f"{domain:08X}:{bus:02X}:{slot:02X}.0".encode()
