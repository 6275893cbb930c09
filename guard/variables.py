"""Which OOMGUARD* variables exist, to name one that is misspelt: a server started without its guard says nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SWITCH: Final = "OOMGUARD"
_POSITIONS: Final = ("", "on", "off")
GUARDS: Final = frozenset(
    f"OOMGUARD_{name}"
    for name in (
        *("CUDA_HISTORY", "CUDA_SNAPSHOT", "DIR", "FAULTS", "FENCE", "LOOP", "MAIN", "NAME", "PARENT", "PREFLIGHT"),
        *("PROGRESS", "RELIEF", "TERMINATION_LOG"),
    )
)
_SIDECARS: Final = re.compile(
    r"OOMGUARD_(LISTEN|LOG_LEVEL|PEER_UIDS|PROBE|SIGHT|SUPERVISOR|(HEALTH|RECORD|SUPERVISED|TARGET|TICK)_\w+)"
)
"""One block of variables may serve both; the sidecar itself refuses one of a family that does not exist."""
_SERVICE: Final = re.compile(r"OOMGUARD_(SERVICE_HOST|(SERVICE_)?PORT(_.*)?)")
"""Kubernetes' service links, where a Service is called `oomguard`."""


def warning(environment: Mapping[str, str]) -> str | None:
    """Say in one line what nobody will heed; None where all is known."""
    position = environment.get(_SWITCH, "")
    strange = sorted(name for name in environment if name.startswith(_SWITCH + "_") and not _is_known(name))
    parts = [f"{_SWITCH}={position[:40]!r} is neither on nor off and counts as on"] * (
        position.strip().lower() not in _POSITIONS
    )
    if strange:
        parts.append(f"nobody knows {', '.join(strange)}")
    return "; ".join(parts) or None


def _is_known(name: str) -> bool:
    return name in GUARDS or any(family.fullmatch(name) for family in (_SIDECARS, _SERVICE))
