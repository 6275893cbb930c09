"""Health answers from a board."""

from __future__ import annotations

import pytest
from board_makers import NOW, board, judgement, view

from sidecar.health.values import State
from sidecar.outputs import answers
from sidecar.outputs.answers import Question
from sidecar.sample import Instant


def later(seconds: float) -> Instant:
    """NOW and some seconds."""
    return Instant(NOW.monotonic_s + seconds, NOW.wall_s + seconds)


def test_a_well_model_answers_ok_to_all_three() -> None:
    """Every question about a model that passes is answered with the two letters."""
    assert {"ok"} == {answers.ask(board(view()), question, NOW).line() for question in Question}


def test_each_question_reads_its_own_field() -> None:
    """A model may be alive, not ready and not started at once."""
    seen = board(view(judgement=judgement(State.LOADING, ready=False, started=False)))
    got = {question: answers.ask(seen, question, NOW).status for question in Question}
    assert got == {Question.LIVE: 200, Question.READY: 503, Question.STARTED: 503}


def test_one_bad_model_fails_all_but_not_its_neighbour() -> None:
    """The route without a name needs every model; a route with a name only that one."""
    bad = judgement(State.HUNG, live=False, reasons=("no answer for 30 s",))
    seen = board(view("a"), view("b", judgement=bad))
    assert answers.ask(seen, Question.LIVE, NOW).line() == "failed: b: hung; no answer for 30 s"
    assert answers.ask(seen, Question.LIVE, NOW, "a").line() == "ok"
    assert answers.ask(seen, Question.LIVE, NOW, "b").status == 503


def test_a_model_that_is_history_fails_itself_alone() -> None:
    """The plain routes leave it out and say so; its own route still says that it is dead."""
    dead = view("convert", judgement=judgement(State.DEAD, live=False, ready=False), history=True)
    seen = board(dead, view("llm"))
    for question in Question:
        answer = answers.ask(seen, question, NOW)
        assert (answer.line(), answer.left_out) == ("ok", ("convert",))
    assert answers.ask(seen, Question.LIVE, NOW, "convert").status == 503
    assert answers.explain(answers.ask(seen, Question.READY, NOW), seen)["left_out"] == ["convert"]
    assert "convert has ended; only /livez/convert" in answers.verbose(answers.ask(seen, Question.LIVE, NOW), seen)
    alone = answers.ask(board(dead), Question.LIVE, NOW)
    assert alone.line() == "ok (cannot tell: every model that was seen has ended)"
    assert answers.ask(board(dead), Question.READY, NOW).status == 503


def test_no_model_seen_yet_is_alive_but_neither_ready_nor_started() -> None:
    """What the sidecar does not know never kills; a plain probe of an unseen server would not pass as ready either."""
    assert answers.ask(board(), Question.LIVE, NOW).line() == "ok (cannot tell: no model has been seen yet)"
    assert answers.ask(board(), Question.READY, NOW).line() == "failed: no model has been seen yet"
    assert answers.ask(board(view()), Question.STARTED, NOW, "x").line() == "failed: no model named x has been seen yet"


@pytest.mark.parametrize(("age", "status"), [(4.9, 503), (5.1, 200)])
def test_an_old_board_cannot_kill_the_model(age: float, status: int) -> None:
    """Past the sidecar's own deadline a failing liveness turns into "cannot tell", as the word is old."""
    seen = board(view(judgement=judgement(State.HUNG, live=False)))
    assert answers.ask(seen, Question.LIVE, later(age)).status == status


def test_an_old_board_keeps_the_last_word_on_readiness() -> None:
    """Readiness neither recovers nor breaks by the sidecar's own failure."""
    assert answers.ask(board(view()), Question.READY, later(60)).status == 200
    unready = board(view(judgement=judgement(State.SLOW, ready=False)))
    assert answers.ask(unready, Question.READY, later(60)).status == 503


def test_a_state_that_the_judge_does_not_know_is_said() -> None:
    """State unknown passes on the judge's word, and the answer says that it is no knowledge."""
    seen = board(view(judgement=judgement(State.UNKNOWN, reasons=("no probe set",))))
    assert answers.ask(seen, Question.LIVE, NOW).line() == "ok (cannot tell: unknown; no probe set)"


@pytest.mark.parametrize(
    ("tick", "age", "alive"), [(0.1, 4.9, True), (0.1, 5.1, False), (1.0, 9.9, True), (1.0, 10.1, False)]
)
def test_the_sidecar_lives_by_the_age_of_its_tick(tick: float, age: float, alive: bool) -> None:  # noqa: FBT001
    """The deadline is ten ticks, but at least five seconds."""
    seen = board(view())
    seen.own = type(seen.own)(started=seen.own.started, last_tick=NOW, tick_seconds=tick, ticks=1, degraded=())
    assert answers.ask_sidecar(seen, later(age), ready=False).passed is alive


def test_before_the_first_tick_the_sidecar_is_alive_but_not_ready() -> None:
    """A start takes a moment; the age then counts from the start."""
    seen = board()
    seen.own = type(seen.own)(started=NOW, last_tick=None, tick_seconds=0.1, ticks=0, degraded=())
    assert answers.ask_sidecar(seen, later(1), ready=False).passed
    assert not answers.ask_sidecar(seen, later(1), ready=True).passed
    assert not answers.ask_sidecar(seen, later(6), ready=False).passed


def test_verbose_says_state_credit_probe_and_what_is_missing() -> None:
    """The long answer ends in the short one and holds everything behind it."""
    seen = board(view(judgement=judgement(State.RECLAIMING, credit_left_seconds=41.5, degraded=("no loop tokens",))))
    text = answers.verbose(answers.ask(seen, Question.LIVE, NOW), seen)
    assert text.splitlines() == [
        "[+]llm reclaiming; answers in 20 ms",
        "    state: reclaiming",
        "    credit left: 41.5 s",
        "    last probe: ok after 0.020 s",
        "    degraded: no loop tokens",
        "    degraded: node cannot tell: /proc/vmstat: denied",
        "ok",
    ]
