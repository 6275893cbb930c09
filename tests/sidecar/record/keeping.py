"""Records as the sidecar keeps them, made at once: through its own store, without its thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sidecar.board import Event, Incident
from sidecar.outputs import record_file, record_store
from sidecar.outputs.record_file import RecordFile
from sidecar.outputs.record_rows import row
from sidecar.outputs.record_series import Series
from sidecar.outputs.record_store import IncidentRow, Pending, SampleRow
from sidecar.outputs.shape import encode
from sidecar.sample import Instant, Sample
from tests.sidecar.outputs.board_makers import NOW, event, incident, judgement, sample

BOOT = "boot-1"


def at(seconds: float, *, wall: float | None = None) -> Instant:
    """An instant so many seconds after the first; the wall clock runs along unless given."""
    return Instant(NOW.monotonic_s + seconds, NOW.wall_s + seconds if wall is None else wall)


def line(one: Sample) -> bytes:
    """A sample as it is stored."""
    return encode(row(one, judgement()))


def series(samples: Iterable[Sample]) -> bytes:
    """The last minute as an incident keeps it."""
    kept = Series(60.0)
    for one in samples:
        kept.add(one.at.monotonic_s, line(one))
    return kept.blob()


def ended(seconds: float, *, session: str = "s1", model: str = "llm", main: bool = True) -> Incident:
    """An end at a time, counted already."""
    end = incident(session)
    return replace(end, at=at(seconds), model=model, main=main, counted_as=end.verdict.end_class)


def told(number: int, seconds: float, text: str = "something") -> Event:
    """An event at a time."""
    return replace(event(number, text), at=at(seconds))


@dataclass(slots=True)
class Content:
    """What goes into a record in one go."""

    samples: list[Sample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    incidents: list[tuple[Incident, bytes | None]] = field(default_factory=list)
    boot_id: str = BOOT

    def write(self, record: RecordFile) -> None:
        """Write it all in one transaction."""
        pending = Pending(
            samples=deque(SampleRow(one.model, one.at, line(one)) for one in self.samples),
            events=deque(self.events),
            incidents={one.id: IncidentRow(one, blob) for one, blob in self.incidents},
        )
        record_store.write(record.connection, pending, self.boot_id)


@contextmanager
def writer(path: Path, *content: Content) -> Iterator[RecordFile]:
    """A sidecar's record, open as a running sidecar has it."""
    record = record_file.open_record(path, NOW.wall_s)
    try:
        record_store.note_start(record.connection, BOOT, NOW.wall_s)
        for one in content:
            one.write(record)
        yield record
    finally:
        record.close()


def keep(path: Path, *content: Content) -> Path:
    """Write a record and close it, as a sidecar that stopped leaves it."""
    with writer(path, *content):
        return path


def minute(count: int = 3, model: str = "llm") -> Content:
    """Samples a second apart, an event, an end at the last of them with a series of ten a second."""
    fine = [sample(at(tenth / 10), model) for tenth in range((count - 1) * 10 + 1)]
    return Content(
        samples=fine[::10],
        events=[told(1, 0.5)],
        incidents=[(ended(count - 1, model=model), series(fine))],
    )
