"""What the guard says about itself in one process (not named `status`: that is the public function)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from guard.admission import requests
from guard.fence import fence, troubles
from guard.hooks import states
from guard.keeper import keeper
from guard.link.protocol import Relieved
from guard.place import shared_directory
from guard.pressure import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A picture of one instant. `troubles` are the last few things that went wrong, `trouble_count` all of them."""

    active: bool
    session: str | None
    parent_session: str | None
    directory: str
    box: str | None  # path of the black box
    link: str  # where the link to the sidecar stands, "idle" before the first mark
    link_detail: str
    hooks: Mapping[str, str]
    trouble_count: int
    troubles: tuple[str, ...]
    pressure: str  # "none", "warning" or "critical", as the guard was told
    requests_inside: int | None  # None where nobody counts them
    cuda: Mapping[str, str | int]  # the observer's state; once CUDA is up, the allocator's counters of the current GPU
    relieving: str | None  # the callback that runs now; those after it wait for it
    relieved: tuple[Relieved, ...]  # what relief gave back, the last few runs


def gather(*, active: bool) -> Status:
    """Take the picture."""
    box, link, relief = keeper.box, keeper.link, keeper.relief
    state = None if link is None else link.state
    return Status(
        active=active,
        session=keeper.session,
        parent_session=keeper.parent_session,
        directory=shared_directory(),
        box=None if box is None else box.path,
        link="idle" if state is None else state.phase.value,
        link_detail="" if state is None else state.detail,
        hooks=MappingProxyType(states() if active else {}),
        trouble_count=troubles.count,
        troubles=tuple(troubles.latest),
        pressure=NONE if relief is None else relief.pressing().level,
        requests_inside=requests.inside if requests.counted else None,
        cuda=MappingProxyType(_cuda() if active else {}),
        relieving=None if relief is None else relief.running,
        relieved=() if relief is None else tuple(relief.effects),
    )


def _cuda() -> dict[str, str | int]:
    """What torch's allocator says, where torch is imported. CUDA is never brought up by asking."""
    torch = sys.modules.get("torch")
    if torch is None or states().get("torch_memory") != "installed":
        return {}
    from guard.hooks import torch_memory

    found: dict[str, str | int] = {"observer": torch_memory.state()}
    with fence("cuda status"):
        if torch.cuda.is_initialized():
            from guard.cuda.limits import limits
            from guard.cuda.record import allocator

            device = torch.cuda.current_device()
            found |= {"device": device, **allocator(device), **limits.counters(device)}
    return found
