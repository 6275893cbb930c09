"""What torch itself can do against running out of GPU memory, set on request: a limit, and a reserve.

    * `fraction`: torch's allocator takes at most this part of the card. What cuBLAS, cuDNN and NCCL allocate by
      themselves then finds room, and a failure is torch's own exception instead of theirs. It counts torch's memory
      alone, not the CUDA context.
    * `reserve_bytes` (torch 2.8 and newer): a pool that torch uses only when everything else is full. The request that
      would have failed is served from it, so there is time to shed load; `reserve_used_bytes` says that it is in use.

Rejected: torch's `throw_on_cudamalloc_oom` (2.12 and newer). A fraction that was set by call, or from the environment
before CUDA came up, is checked first and makes it idle; with one set later it refuses requests although emptying the
cache would have made room, and calls no observer (all seen in 2.14.1). Its rejections are known by their exception.

Nothing is set without a call, nothing is set that this torch does not have, and `refused` says what and why.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

from guard.fence import fence

_POOLS_END_WELL: Final = (2, 11)
"""Before, a pool that was dropped stayed registered and failed an assertion at the next out-of-memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaMemory:
    """What is in force after the call. `refused` are reasons, one for each thing that was asked for and is not set."""

    device: int | None
    fraction: float | None = None
    reserve_bytes: int | None = None
    refused: tuple[str, ...] = ()


class Limits:
    """What was set in this process, and how to take it back."""

    __slots__ = ("_fractions", "_pools")

    def __init__(self) -> None:
        self._fractions: dict[int, float] = {}  # before us
        self._pools: dict[int, tuple[Any, int]] = {}

    def set(self, fraction: float | None, reserve_bytes: int | None, device: int | None) -> CudaMemory:
        """Set what is asked for on a device, the current one by default. CUDA must be up."""
        torch: Any = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return CudaMemory(device=device, refused=("CUDA is not up: call this after torch.cuda.set_device",))
        index: int = torch.cuda.current_device() if device is None else device
        refused: list[str] = []
        limited = self._limit(torch, index, fraction, refused)
        reserve = self._reserve(torch, index, reserve_bytes, refused)
        return CudaMemory(device=index, fraction=limited, reserve_bytes=reserve, refused=tuple(refused))

    def _limit(self, torch: Any, device: int, fraction: float | None, refused: list[str]) -> float | None:  # noqa: ANN401 - torch is not imported for types
        if fraction is None:
            return None
        try:
            get = getattr(torch.cuda, "get_per_process_memory_fraction", None)
            before = float(get(device)) if get is not None else 1.0
            torch.cuda.set_per_process_memory_fraction(float(fraction), device)
        except (RuntimeError, TypeError, ValueError) as error:
            refused.append(f"fraction: {error}"[:200])
            return None
        self._fractions.setdefault(device, before)
        return float(fraction)

    def _reserve(self, torch: Any, device: int, size: int | None, refused: list[str]) -> int | None:  # noqa: ANN401 - see above
        if device in self._pools:
            return self._pools[device][1]
        if size is None:
            return None
        free = int(torch.cuda.mem_get_info(device)[0])
        if free < size:
            refused.append(f"reserve_bytes: {size} asked for, {free} free")
            return None
        try:
            pool = torch.cuda.MemPool(use_on_oom=True)
            with torch.cuda.use_mem_pool(pool, device=device):
                torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")  # given back at once; the pool keeps it
        except (AttributeError, TypeError):
            refused.append("reserve_bytes: this torch does not have it")
            return None
        except RuntimeError as error:
            refused.append(f"reserve_bytes: {error}"[:200])
            return None
        self._pools[device] = (pool, size)
        return size

    def counters(self, device: int) -> dict[str, int]:
        """Say how much of the device's reserve there is and how much of it is in use; empty where there is none."""
        if device not in self._pools:
            return {}
        pool, size = self._pools[device]
        segments = sys.modules["torch"].cuda.memory_snapshot(pool.id, include_traces=False)
        return {"reserve_bytes": size, "reserve_used_bytes": sum(int(one["allocated_size"]) for one in segments)}

    def undo(self) -> None:
        """Take back what was set."""
        torch: Any = sys.modules.get("torch")
        while self._fractions:
            device, before = self._fractions.popitem()
            with fence("cuda fraction"):
                torch.cuda.set_per_process_memory_fraction(before, device)
        if self._pools and tuple(int(part) for part in torch.__version__.split(".")[:2]) >= _POOLS_END_WELL:
            self._pools.clear()


limits = Limits()
