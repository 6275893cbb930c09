"""Which failing answers count, and for whom."""

from __future__ import annotations

from sidecar.livez import Asker, Failing, LivenessAnswers
from tests.sidecar.making import at

KUBELET = Asker("10.0.0.1", "kube-probe")
PERSON = Asker("10.0.0.9", "curl")


def test_failures_count_in_a_row_and_an_answer_that_passes_ends_the_row() -> None:
    """The run has its first and its last moment; it is over with the first good answer."""
    answers = LivenessAnswers()
    assert not answers.asked("m")
    for second in (10, 20, 30):
        answers.count(KUBELET, ["m"], at(second), passed=False)
    assert answers.asked("m")
    assert answers.failing("m", at(31)) == Failing(3, at(10), at(30))
    assert answers.failing("other", at(31)) is None
    answers.count(KUBELET, ["m"], at(40), passed=True)
    assert answers.failing("m", at(41)) is None
    assert answers.asked("m")


def test_each_asker_counts_for_itself_and_the_kubelet_alone_decides() -> None:
    """A person who looks every second adds nothing to the kubelet's count, and counts only where no kubelet asks."""
    answers = LivenessAnswers()
    for second in range(10):
        answers.count(PERSON, ["m"], at(second), passed=False)
    assert answers.failing("m", at(10)) == Failing(10, at(0), at(9))
    answers.count(KUBELET, ["m"], at(10), passed=False)
    assert answers.failing("m", at(11)) == Failing(1, at(10), at(10))


def test_the_next_life_begins_anew() -> None:
    """What was answered about the process before does not count."""
    answers = LivenessAnswers()
    answers.count(KUBELET, ["m", "other"], at(1), passed=False)
    answers.forget("m")
    assert not answers.asked("m")
    assert answers.failing("m", at(2)) is None
    assert answers.failing("other", at(2)) is not None


def test_a_run_that_ended_long_ago_explains_nothing() -> None:
    """Probes stop while a server is told to stop, for minutes; after a quarter of an hour nobody waits any more."""
    answers = LivenessAnswers()
    answers.count(KUBELET, ["m"], at(0), passed=False)
    assert answers.failing("m", at(900)) is not None
    assert answers.failing("m", at(901)) is None


def test_askers_without_end_take_no_memory_without_end() -> None:
    """Old askers are forgotten, the one that goes on asking is not."""
    answers = LivenessAnswers()
    for number in range(500):
        answers.count(KUBELET, ["m"], at(number), passed=False)
        answers.count(Asker(f"10.1.{number}", "x"), ["m"], at(number), passed=False)
    failing = answers.failing("m", at(500))
    assert failing is not None
    assert failing.failures == 500
    assert sum(len(runs) for runs in answers._runs.values()) <= 64


def test_many_models_are_counted_each() -> None:
    """A hundred models that one page answers for, asked by two: no run is lost to another model's."""
    answers, models = LivenessAnswers(), [f"m{number}" for number in range(100)]
    for second in range(3):
        answers.count(PERSON, models, at(second), passed=False)
        answers.count(KUBELET, models, at(second), passed=False)
    assert {answers.failing(model, at(3)) for model in models} == {Failing(3, at(0), at(2))}


def test_no_crowd_makes_the_kubelet_forgotten() -> None:
    """Whoever asks under ever new names between two probes of the kubelet takes its run from nobody else."""
    answers = LivenessAnswers()
    for second in range(3):
        answers.count(KUBELET, ["m"], at(second * 10), passed=False)
        for number in range(200):
            answers.count(Asker("10.0.0.9", f"x{number}"), ["m"], at(second * 10), passed=True)
    assert answers.failing("m", at(30)) == Failing(3, at(0), at(20))
