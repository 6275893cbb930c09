"""What the guard says about itself in one process (not named `status`: that is the public function)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from guard.admission import requests
from guard.fence import troubles
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
        relieved=() if relief is None else tuple(relief.effects),
    )
