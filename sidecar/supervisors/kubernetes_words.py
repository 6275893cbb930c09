"""Events about a pod as words about the end of its containers, by the parsers that `oomguard explain` has for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from sidecar.explain.messages.containers import PATTERNS
from sidecar.explain.patterns import MessageParser
from sidecar.explain.probes import ProbeParser
from sidecar.explain.values import Line, Role, Sign
from sidecar.verdict.supervisor_values import SupervisorWord, SupervisorWordKind
from sidecar.verdict.values import EndClass

_KINDS: Final = {
    EndClass.HEALTH_CHECK: SupervisorWordKind.LIVENESS_KILL,
    EndClass.EVICTION: SupervisorWordKind.EVICTION,
    EndClass.DELETION: SupervisorWordKind.DELETION,
    EndClass.GLOBAL_OOM: SupervisorWordKind.NODE_OOM,
    EndClass.USERSPACE_OOM: SupervisorWordKind.USERSPACE_OOM,
    EndClass.DEVICE_RESET: SupervisorWordKind.DEVICE,
}


class _Involved(msgspec.Struct, rename="camel"):
    field_path: str = ""


class _Series(msgspec.Struct, rename="camel"):
    last_observed_time: datetime | None = None


class Event(msgspec.Struct, rename="camel"):
    """One event of core/v1. Times are of its last occurrence."""

    reason: str = ""
    message: str | None = None
    type: str | None = None
    count: int | None = None
    involved_object: _Involved = msgspec.field(default_factory=_Involved)
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: _Series | None = None

    @property
    def at_wall_s(self) -> float | None:
        """When it was last seen, in seconds since 1970."""
        series = None if self.series is None else self.series.last_observed_time
        moment = series or self.last_timestamp or self.event_time
        return None if moment is None else (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def is_about(self, container: str) -> bool:
        """Whether it is about this container, or about the pod as a whole."""
        path = self.involved_object.field_path
        return "{" not in path or path.endswith(f"{{{container}}}")


def words_of(events: Sequence[Event], container: str) -> tuple[SupervisorWord, ...]:
    """Give the words about one container's end, in the order of time."""
    ours = sorted((one for one in events if one.is_about(container)), key=lambda one: one.at_wall_s or 0.0)
    probes, messages = ProbeParser(), MessageParser(PATTERNS)
    for number, one in enumerate(ours):
        times = f" (x{one.count} over 1m)" if one.count is not None and one.count > 1 else ""
        text = f"{one.type or ''} {one.reason} {' '.join((one.message or '').split())}{times}"
        line = Line(file="events", number=number, text=text, whole=text)
        if not probes.feed(line):
            messages.feed(line)
    signs = sorted((*probes.finish(), *messages.finish()), key=lambda sign: sign.line)
    words = [_word(sign, ours[sign.line]) for sign in signs if sign.role is not Role.CONTEXT]
    return tuple(word for word in words if word is not None)


def _word(sign: Sign, event: Event) -> SupervisorWord | None:
    kind = _KINDS.get(sign.end_class)
    if kind is SupervisorWordKind.LIVENESS_KILL and sign.fields.get("probe") == "startup":
        kind = SupervisorWordKind.STARTUP_KILL
    if kind is None:
        return None
    message = " ".join((event.message or "").split())[:300]
    text = f"{sign.summary} (event {event.reason}: {message})" if message else f"{sign.summary} (event {event.reason})"
    return SupervisorWord(kind=kind, text=text, at_wall_s=event.at_wall_s)
