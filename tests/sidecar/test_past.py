"""What the record knew, at the start or late, and ends of models that nobody watches."""

from __future__ import annotations

from dataclasses import replace

from sidecar.board import Board, Incident
from sidecar.collect.probe import Prober
from sidecar.health.judge import JudgeMemory
from sidecar.health.values import Rules
from sidecar.outputs.record_store import Loaded
from sidecar.past import Past
from sidecar.verdict.values import EndClass
from sidecar.watch import Watch
from sidecar.watches import Watches
from tests.sidecar.clocks import VirtualClock
from tests.sidecar.outputs.board_makers import board, incident, life

OOM, EXIT = EndClass.CGROUP_OOM.value, EndClass.APPLICATION_EXIT.value


def end(session: str, model: str = "llm", *, main: bool = True) -> Incident:
    """An end of a process by the kernel."""
    return replace(incident(session, model, main=main), life=life(session))


def watching() -> Watches:
    """No model yet."""
    clock = VirtualClock()

    def make(name: str) -> Watch:
        prober = Prober(None, Rules(), clock, lambda _: None)
        return Watch(name=name, prober=prober, ends={}, incidents=(), memory=JudgeMemory())

    return Watches("llm", make, lambda _: None)


def known(*incidents: Incident, ends: dict[str, dict[str, int]]) -> Loaded:
    """What a record holds."""
    return Loaded(ends=ends, incidents=incidents, lives=frozenset(one.life for one in incidents))


def test_the_record_speaks_for_models_until_they_are_watched() -> None:
    """Counts and incidents of the record are on the board and are what a model's watch starts from."""
    seen: Board = board()
    past = Past(seen)
    past.take(known(end("a"), end("b", "other"), ends={"llm": {OOM: 4}, "other": {OOM: 1}}), watching())
    assert seen.past_ends == {"llm": {OOM: 4}, "other": {OOM: 1}}
    assert [one.id for one in seen.past_incidents] == ["a", "b"]
    assert past.ends_of("llm") == {OOM: 4}
    assert [one.id for one in past.incidents_of("llm")] == ["a"]
    assert past.ends_of("new") == {}
    assert past.sessions == {"a", "b"}
    assert past.judge_of("llm") == JudgeMemory()


def test_an_end_of_a_model_that_nobody_watches_counts_for_it() -> None:
    """It is listed first, and counts once it is said to."""
    seen = board()
    past = Past(seen)
    past.take(known(end("a"), ends={"llm": {OOM: 1}}), watching())
    past.file(end("b"))
    past.count("llm", EndClass.CGROUP_OOM)
    past.file(end("c", main=False))
    assert past.ends_of("llm") == {OOM: 2}
    assert [one.id for one in seen.past_incidents] == ["c", "b", "a"]


def test_a_model_that_is_let_go_is_spoken_for() -> None:
    """Its counts and ends stay on the board, and a model of its name goes on from there."""
    seen, watches = board(), watching()
    past, watch = Past(seen), watches.first()
    watch.file(end("a"))
    watch.count(EndClass.CGROUP_OOM)
    watch.file(end("b", main=False))
    past.let_go(watch)
    assert past.ends_of("llm") == {OOM: 1}
    assert {one.id for one in past.incidents_of("llm")} == {"a", "b"}


def test_ends_of_children_push_no_model_out() -> None:
    """The last ends of main processes and of children are kept apart, in order, both bounded."""
    seen, watches = board(), watching()
    past, watch = Past(seen), watches.first()

    def file(incident: Incident) -> None:
        watch.file(incident)
        past.file(incident)

    for place in range(60):
        file(end(f"main-{place}"))
    for place in range(300):
        file(end(f"child-{place}", main=False))
    for incidents, most in ((watch.incidents, 20), (seen.past_incidents, 50), (past.incidents_of("llm"), 20)):
        assert [one.id for one in incidents if one.main] == [f"main-{place}" for place in range(59, 59 - most, -1)]
        assert [one.id for one in incidents if not one.main] == [f"child-{n}" for n in range(299, 299 - most, -1)]


def test_a_late_record_adds_to_what_happened_meanwhile() -> None:
    """Counts of before and of meanwhile add up, for models that are watched and for those that are not."""
    seen, watches = board(), watching()
    past, watch = Past(seen), watches.first()
    past.take(Loaded(), watches)
    watch.file(end("new"))
    watch.count(EndClass.CGROUP_OOM)
    past.file(end("unwatched", "other"))
    past.count("other", EndClass.CGROUP_OOM)
    past.sessions |= {"new", "unwatched"}
    past.take(known(end("old"), ends={"llm": {OOM: 2, EXIT: 1}, "other": {OOM: 5}}), watches)
    assert watch.ends == {OOM: 3, EXIT: 1}
    assert [one.id for one in watch.incidents] == ["new", "old"]
    assert seen.past_ends["other"] == {OOM: 6}
    assert [one.id for one in seen.past_incidents] == ["unwatched", "old"]


def test_an_end_that_was_found_again_before_the_record_opened_counts_once() -> None:
    """A box whose end the record already held could not be known for that: it is not told twice."""
    seen, watches = board(), watching()
    past, watch = Past(seen), watches.first()
    past.take(Loaded(), watches)
    watch.file(end("twice"))
    watch.count(EndClass.CGROUP_OOM)
    past.file(end("also", "other"))
    past.count("other", EndClass.CGROUP_OOM)
    past.sessions |= {"twice", "also"}
    ends = {"llm": {OOM: 1}, "other": {OOM: 1}}
    past.take(known(end("twice"), end("also", "other"), ends=ends), watches)
    assert watch.ends == {OOM: 1}
    assert seen.past_ends["other"] == {OOM: 1}
    assert [one.id for one in watch.incidents] == ["twice"]
    assert [one.id for one in seen.past_incidents] == ["twice", "also"]
