"""Which way of seeing is used while no model hands over: the best one that works now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from guard.kernel.reader import Reader
from guard.model import Unknown
from sidecar.sample import SightKind
from sidecar.settings import Settings, SightChoice
from sidecar.sight.host_cgroup import HostCgroupSight
from sidecar.sight.own import OwnSight
from sidecar.sight.seen import SeenModel
from sidecar.sight.shared_pid import SharedPidSight


class Sight(Protocol):
    """A way of seeing without the model's help."""

    kind: SightKind

    def look(self) -> SeenModel | Unknown:
        """Give the model, the same object while nothing changed, or say why it is not seen."""
        ...

    def drop(self) -> None:
        """Forget what was seen; the next look opens it anew."""
        ...


_ALLOWED: Final[Mapping[SightChoice, frozenset[SightKind]]] = {
    SightChoice.AUTO: frozenset({SightKind.SHARED_PID, SightKind.HOST_CGROUP, SightKind.OWN}),
    SightChoice.HANDOVER: frozenset(),
    SightChoice.SHARED_PID: frozenset({SightKind.SHARED_PID}),
    SightChoice.HOST_CGROUP: frozenset({SightKind.HOST_CGROUP}),
    SightChoice.OWN: frozenset({SightKind.OWN}),
}


class Chooser:
    """Looks in order of preference. `refused` says of each better way why it does not see the model."""

    def __init__(self, settings: Settings, reader: Reader) -> None:
        ways: tuple[Sight, ...] = (
            SharedPidSight(reader, settings.name, settings.target.process),
            HostCgroupSight(reader, settings.name, settings.target),
            OwnSight(reader, settings.name),
        )
        self._ways = tuple(way for way in ways if way.kind in _ALLOWED[settings.sight])
        self.refused: dict[SightKind, Unknown] = {}

    def look(self) -> SeenModel | None:
        """Give the model by the best way that sees it, the same object while nothing changed."""
        self.refused = {}
        for way in self._ways:
            seen = way.look()
            if not isinstance(seen, Unknown):
                return seen
            self.refused[way.kind] = seen
        return None

    def drop(self) -> None:
        """Forget what was seen, after its owner closed it."""
        for way in self._ways:
            way.drop()


def hands_over(choice: SightChoice) -> bool:
    """Whether models may hand over under this setting."""
    return choice in {SightChoice.AUTO, SightChoice.HANDOVER}
