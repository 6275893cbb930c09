"""Which OOMGUARD* variables exist, to name one that is misspelt: a server started without its guard says nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from guard.switches import OFF, ON

if TYPE_CHECKING:
    from collections.abc import Mapping

_SWITCH: Final = "OOMGUARD"
_POSITIONS: Final = {"", *ON, *OFF}
GUARDS: Final = frozenset(
    f"OOMGUARD_{name}"
    for name in (
        *("CUDA_HISTORY", "CUDA_SNAPSHOT", "DIR", "FAULTS", "FENCE", "LOOP", "MAIN", "NAME", "PARENT", "PREFLIGHT"),
        *("PROGRESS", "RELIEF", "TERMINATION_LOG"),
    )
)
_SIDECARS: Final = re.compile(
    r"OOMGUARD_(GRPC_LISTEN|LISTEN|LOG_LEVEL|PEER_UIDS|PROBE|SIGHT|SUPERVISOR|(HEALTH|RECORD|SUPERVISED|TARGET|TICK)_\w+)"
)
"""One block of variables may serve both; the sidecar itself refuses one of a family that does not exist."""
_LINK: Final = re.compile(
    r"OOMGUARD_(\w+_)?(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=.*|PORT_\d+_\w+=.*|PORT=(tcp|udp|sctp)://.*)", re.DOTALL
)
"""Kubernetes' service links, where a Service is called `oomguard` or `oomguard-metrics`."""


def warning(environment: Mapping[str, str]) -> str | None:
    """Say in one line what nobody will heed; None where all is known."""
    position = environment.get(_SWITCH, "")
    ours = {name: text for name, text in environment.items() if name.startswith(_SWITCH + "_")}
    strange = sorted(name for name, text in ours.items() if not _is_known(name, text))
    parts = [f"{_SWITCH}={position[:40]!r} is neither on nor off and counts as on"] * (
        position.strip().lower() not in _POSITIONS
    )
    if strange:
        parts.append(f"nobody knows {', '.join(strange)}")
    return "; ".join(parts) or None


def _is_known(name: str, text: str) -> bool:
    return name in GUARDS or bool(_SIDECARS.fullmatch(name) or _LINK.fullmatch(f"{name}={text}"))
