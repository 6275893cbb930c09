"""The last resort: the sidecar's own container. It does not see the model, and the kind `own` says so everywhere.

It is worth having where both share a cgroup (a systemd unit, a server that starts the sidecar), and for the node.
"""

from __future__ import annotations

from guard.kernel import locate
from guard.kernel.reader import Reader
from guard.model import Unknown
from sidecar.sample import SightKind
from sidecar.sight.levels import open_levels
from sidecar.sight.seen import SeenModel


class OwnSight:
    """Sees the levels of this very process."""

    kind = SightKind.OWN

    def __init__(self, reader: Reader, name: str) -> None:
        self._reader = reader
        self._name = name
        self._seen: SeenModel | None = None

    def look(self) -> SeenModel | Unknown:
        """Give our own levels, without any process; the same object every time."""
        if self._seen is None:
            chain = locate.locate(self._reader)
            if isinstance(chain, Unknown):
                return chain
            self._seen = SeenModel(
                name=self._name,
                kind=self.kind,
                levels=open_levels(self._reader, chain.value),
                hidden_ancestors=chain.value.hidden_ancestors,
            )
        return self._seen

    def drop(self) -> None:
        """Forget what was seen; its owner has closed it."""
        self._seen = None
