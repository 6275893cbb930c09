"""What this process holds, before and after a relief action: so that each can say what it gave back.

Other threads allocate meanwhile, so a difference may be off, or negative; it is what the kernel says, not a promise.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from guard.kernel import locate, procfs
from guard.kernel.flat import parse_number
from guard.kernel.values import CgroupVersion
from guard.model import Known, Reading, Unknown, Why

if TYPE_CHECKING:
    from guard.kernel.reader import Reader

_STATUS: Final = "/proc/self/status"
_CHARGED: Final = {CgroupVersion.V1: "memory.usage_in_bytes", CgroupVersion.V2: "memory.current"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Bytes of this process's anonymous memory, of its own cgroup, and of all cards in torch's caching allocator."""

    anon_bytes: Reading[int]
    cgroup_bytes: Reading[int]
    gpu_reserved_bytes: Reading[int]


def held(reader: Reader) -> Held:
    """Read all three."""
    return Held(anon_bytes=_anon(reader), cgroup_bytes=_charged(reader), gpu_reserved_bytes=_reserved())


def freed(before: Reading[int], after: Reading[int]) -> int | None:
    """Bytes given back between two readings, negative where it grew; None where one of them is unknown."""
    return before.value - after.value if isinstance(before, Known) and isinstance(after, Known) else None


def _anon(reader: Reader) -> Reading[int]:
    data = reader.read(_STATUS)
    status = data if isinstance(data, Unknown) else procfs.parse_status(data.value, _STATUS)
    if isinstance(status, Unknown):
        return status
    anon = status.value.rss_anon_bytes
    return Unknown(Why.MISSING, f"{_STATUS} RssAnon") if anon is None else Known(anon)


def _charged(reader: Reader) -> Reading[int]:
    chain = locate.locate(reader)
    if isinstance(chain, Unknown):
        return chain
    own = chain.value.levels[0]
    path = f"{own.memory_dir}/{_CHARGED[own.version]}"
    data = reader.read(path)
    return data if isinstance(data, Unknown) else parse_number(data.value, path)


def cuda_in_use() -> Any | None:  # noqa: ANN401 - torch is not imported for types
    """Give the module `torch.cuda` where the host has brought CUDA up, else None. Brings nothing up itself."""
    cuda = sys.modules.get("torch.cuda")
    is_initialized = getattr(cuda, "is_initialized", None)  # missing while torch is being imported
    return cuda if is_initialized is not None and is_initialized() else None


def _reserved() -> Reading[int]:
    cuda = cuda_in_use()
    if cuda is None:
        return Unknown(Why.MISSING, "torch.cuda", detail="not in use")
    return Known(sum(cuda.memory_reserved(card) for card in range(cuda.device_count())))
