"""Lives that began in the record and did not end in it."""

from __future__ import annotations

from guard.model import LifeId
from sidecar.begun import Begun, fields_of, without_end
from sidecar.board import Event
from sidecar.journal import Scalar
from tests.sidecar.making import at

FIRST, SECOND = LifeId("boot", 7, 100, "one"), LifeId("boot", 7, 900, "two")


def event(number: int, kind: str, fields: dict[str, Scalar], model: str = "server") -> Event:
    """Make an event, a second after the one before."""
    return Event(id=number, at=at(number, wall=1000.0 + number), model=model, kind=kind, text="", fields=fields)


def test_only_a_life_without_an_end_is_left() -> None:
    """An end in the events or among the recorded lives closes it; the last word on its model says how long it lived."""
    events = [
        event(1, "model_started", fields_of(FIRST)),
        event(2, "model_ended", {"session": "one"}),
        event(3, "model_started", fields_of(SECOND)),
        event(4, "warning", {}),
        event(5, "warning", {}, model="other"),
    ]
    assert without_end(events, ()) == (Begun("server", SECOND, 1004.0),)
    assert without_end(events, {SECOND}) == ()


def test_a_process_that_took_another_session_has_one_end() -> None:
    """Exec gives a process a new guard and session: the end under that one closes both."""
    events = [event(1, "model_started", fields_of(FIRST))]
    assert without_end(events, {LifeId("boot", 7, 100, "after exec")}) == ()


def test_a_life_that_cannot_be_told_apart_is_passed_over() -> None:
    """A process that was not handed over, or an older release's event, says no start: nothing is made up."""
    assert without_end([event(1, "model_started", {"pid": 7, "session": "one"})], ()) == ()
