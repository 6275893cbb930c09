"""How much memory is left: below every limit that can be seen from here, on the node, and on a card."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from typing import Any, Final

from guard.kernel import meminfo
from guard.kernel.locate import locate
from guard.kernel.memcg import FILES, MEMORY, headroom_bytes, parse_level
from guard.kernel.reader import Reader
from guard.kernel.values import LevelPath
from guard.model import Known, Limit, Reading, Unknown, Unlimited, Why

_MEMINFO: Final = "/proc/meminfo"


@dataclass(frozen=True, slots=True)
class Room:
    """What is left somewhere, in bytes; negative when it is over already."""

    where: str
    left_bytes: Reading[Limit]


def rooms(reader: Reader) -> tuple[Room, ...]:
    """Read what is left below the limits of this process's cgroups and on the node. A millisecond or two."""
    data = reader.read(_MEMINFO)
    node = data if isinstance(data, Unknown) else meminfo.parse(data.value, _MEMINFO)
    swap = meminfo.swap_free_bytes(node)
    chain = locate(reader)
    if isinstance(chain, Unknown):
        return (Room("the cgroup", chain), _node(node))
    *below, top = chain.value.levels
    return (
        *(_level(reader, level, swap, hidden=False) for level in below),
        _level(reader, top, swap, hidden=chain.value.hidden_ancestors),
        _node(node),
    )


def binding(found: tuple[Room, ...]) -> Room | None:
    """Give the place with the least room of those that are known and limited."""
    limited = [
        (room.left_bytes.value, at)
        for at, room in enumerate(found)
        if isinstance(room.left_bytes, Known) and not isinstance(room.left_bytes.value, Unlimited)
    ]
    return found[min(limited)[1]] if limited else None


def _level(reader: Reader, level: LevelPath, swap: Reading[int], *, hidden: bool) -> Room:
    files = {
        file.name: reader.read(f"{level.memory_dir}/{file.name}")
        for file in FILES[level.version]
        if file.tree == MEMORY and not file.name.endswith(("peak", "max_usage_in_bytes", "events", "events.local"))
    }
    return Room(
        f"cgroup {level.name}", headroom_bytes(parse_level(level.version, files), swap, hidden_ancestors=hidden)
    )


def _node(node: Reading[Any]) -> Room:
    if isinstance(node, Unknown):
        return Room("the node", node)
    left = node.value.get("MemAvailable")
    return Room("the node", Unknown(Why.MISSING, "MemAvailable") if left is None else Known(left))


def card_room(index: int) -> Room:
    """Read what is left on a card, without making a CUDA context: from the host's own torch, else from NVML."""
    where = f"cuda:{index}"
    torch: Any = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_initialized():
            free, _total = torch.cuda.mem_get_info(index)
            kept = torch.cuda.memory_reserved(index) - torch.cuda.memory_allocated(index)
            return Room(f"{where} (free, and kept by torch)", Known(int(free) + int(kept)))
        return Room(f"{where} (free by NVML)", _by_nvml(index))
    except Exception as error:  # noqa: BLE001 - whatever a driver says, it is not known then
        return Room(where, Unknown(Why.FAILED, where, None, f"{type(error).__name__}: {error}"))


def _by_nvml(index: int) -> Reading[Limit]:
    if "pynvml" not in sys.modules and importlib.util.find_spec("pynvml") is None:
        return Unknown(Why.UNSUPPORTED, f"cuda:{index}", None, "CUDA is not in use here and pynvml is not installed")
    import pynvml

    pynvml.nvmlInit()
    try:
        return Known(int(pynvml.nvmlDeviceGetMemoryInfo(_handle(pynvml, index)).free))
    finally:
        pynvml.nvmlShutdown()


def _handle(pynvml: Any, index: int) -> Any:  # noqa: ANN401 - pynvml is untyped
    """Find the card that CUDA calls by this number in this process."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return pynvml.nvmlDeviceGetHandleByIndex(index)
    name = visible.split(",")[index].strip()
    return pynvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdecimal() else pynvml.nvmlDeviceGetHandleByUUID(name)
