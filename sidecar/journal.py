"""Events: numbered, kept on the board, and told to whoever records or streams them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from sidecar.board import Board, Event
from sidecar.sample import Instant

Scalar: TypeAlias = str | int | float | bool | None

KEPT_EVENTS: Final = 500
"""On the board. At one event a second, which is a lot, a client may be away for eight minutes and miss none."""


_ATTENTION: Final = frozenset(
    {
        "degraded",
        "gpu_lost",
        "gpu_xid",
        "livez_failing",
        "record_degraded",
        "record_gone",
        "record_moved_aside",
        "sidecar_stalled",
        "warning",
    }
)


def needs_attention(event: Event) -> bool:
    """Whether an event is more than news: something does not work, gets near its end, or has died."""
    return event.kind in _ATTENTION or "incident" in event.fields


class Journal:
    """Numbers events from `next_id` on. A sink must not raise; each hears every event once, in order."""

    def __init__(self, board: Board, next_id: int = 1) -> None:
        self._board = board
        self._next_id = next_id
        self._sinks: list[Callable[[Event], None]] = []

    def listen(self, sink: Callable[[Event], None]) -> None:
        """Tell this one as well from now on."""
        self._sinks.append(sink)

    def go_on_from(self, next_id: int) -> None:
        """Continue the numbers of a record that was opened late; numbers never go back."""
        self._next_id = max(self._next_id, next_id)

    def say(
        self, at: Instant, model: str, kind: str, text: str, fields: Mapping[str, Scalar] = MappingProxyType({})
    ) -> None:
        """Something happened."""
        event = Event(id=self._next_id, at=at, model=model, kind=kind, text=text, fields=MappingProxyType(dict(fields)))
        self._next_id += 1
        self._board.events = (*self._board.events, event)[-KEPT_EVENTS:]
        for sink in self._sinks:
            sink(event)
