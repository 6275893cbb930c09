"""Whether the supervisors that would be asked do answer here, for `oomguard doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.clock import SystemClock
from sidecar.settings import Settings, SupervisorChoice
from sidecar.supervisors import choose
from sidecar.supervisors.choose import Found
from sidecar.supervisors.values import Container, Trouble

_SECONDS: Final = 15.0
_OPTIONAL: Final = (
    "not needed; with one, health checks, evictions and deletions are told for sure (docs/supervisors.md)"
)


@dataclass(frozen=True, slots=True)
class Examined:
    """How it went, in words; `advice` is empty where nothing is to be done."""

    good: bool
    text: str
    advice: str = ""


def examine(settings: Settings, environ: Mapping[str, str]) -> Examined:
    """Ask each once."""
    if settings.supervisor is SupervisorChoice.NONE:
        return Examined(good=True, text="none is asked, as the settings say")
    found = choose.find(settings, environ)
    if not found:
        return Examined(good=False, text="no token and no socket of a supervisor is here", advice=_OPTIONAL)
    said = [_ask(one) for one in found]
    return Examined(
        good=all(one.good for one in said),
        text="; ".join(one.text for one in said),
        advice="; ".join(one.advice for one in said if one.advice),
    )


def _ask(found: Found) -> Examined:
    if found.make is None:
        return Examined(good=False, text=f"{found.name}: {found.words}", advice=found.advice or _OPTIONAL)
    try:
        source = found.make(SystemClock(), tuple)
    except ImportError as exc:
        return Examined(good=False, text=f"{found.name}: {exc}", advice="pip install 'oomguard[sidecar]'")
    told, lacks = [0], []

    def take(containers: Sequence[Container], lacking: str | None) -> None:
        told[0] = len(containers)
        lacks.extend([lacking] if lacking else [])

    try:
        asyncio.run(asyncio.wait_for(source.look(take), _SECONDS))
    except (Trouble, TimeoutError) as exc:
        words = str(exc) or f"no answer within {_SECONDS:g} s"
        return Examined(good=False, text=f"{source.name}: {words}", advice=found.advice or _OPTIONAL)
    if lacks:
        return Examined(good=False, text=f"{source.name}: {lacks[0]}", advice=_OPTIONAL)
    return Examined(good=True, text=f"{source.name} ({found.words}) answers and tells of {told[0]} containers or units")
