"""Which model a seen cgroup belongs to, and which sight wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from guard.kernel.reader import KeptFile, Reader
from guard.kernel.values import CgroupVersion
from guard.model import Known, LifeId, Unknown
from sidecar.collect.probe import Prober
from sidecar.health.judge import JudgeMemory
from sidecar.health.values import Rules
from sidecar.sample import LevelId, ProbeOutcome, ProbeResult, SightKind
from sidecar.settings import ProbeTarget
from sidecar.sight.seen import SeenLevel, SeenModel, SeenProcess
from sidecar.watch import Watch
from sidecar.watches import KEPT_HISTORY, Watches
from tests.sidecar.clocks import VirtualClock
from tests.sidecar.making import at


class Desk:
    """Watches under test, and an account of what was closed and dropped."""

    def __init__(self) -> None:
        self.closed: list[SeenModel] = []
        self.dropped: list[str] = []
        self.watches = Watches("stand-in", self._make, lambda watch: self.dropped.append(watch.name))

    def hand_over(self, seen: SeenModel) -> Watch:
        """A model hands over."""
        watch = self.watches.handed_over(seen, self._release)
        assert watch.reader is not None
        watch.reader.join()
        return watch

    def fall_back(self, seen: SeenModel | None) -> Watch | None:
        """Another way sees this."""
        return self.watches.fallback(seen, self._release)

    def _release(self, seen: SeenModel, process: SeenProcess | None) -> None:
        assert process is None
        self.closed.append(seen)

    @staticmethod
    def _make(name: str) -> Watch:
        prober = Prober(None, Rules(), VirtualClock(), lambda _: None)
        return Watch(name=name, prober=prober, ends={}, incidents=(), memory=JudgeMemory())


@pytest.fixture
def desk() -> Desk:
    """An empty desk."""
    return Desk()


def model(name: str, kind: SightKind = SightKind.HANDOVER, *, pid: int = 1) -> SeenModel:
    """A seen model with one process and no files."""
    process = SeenProcess(
        life=LifeId("b", pid, pid, f"s{pid}"),
        parent_session=None,
        command="",
        uid=None,
        pidfd=None,
        files={},
        box=None,
    )
    return SeenModel(name=name, kind=kind, levels=(), hidden_ancestors=False, processes=[process])


def names(desk: Desk) -> list[str]:
    """Names of all models."""
    return [watch.name for watch in desk.watches]


def test_hand_over_takes_the_place_of_the_stand_in(desk: Desk) -> None:
    """The first hand-over replaces what was seen another way, whose descriptors are closed."""
    own = model("stand-in", SightKind.OWN)
    desk.fall_back(own)
    desk.hand_over(model("vllm"))
    assert names(desk) == ["vllm"]
    assert desk.closed == [own]
    assert desk.dropped == ["stand-in"]


def test_hand_over_under_the_name_of_the_stand_in_keeps_it(desk: Desk) -> None:
    """A model that is called as the settings say goes on where its stand-in was."""
    desk.fall_back(model("stand-in", SightKind.OWN))
    before = next(iter(desk.watches))
    assert desk.hand_over(model("stand-in")) is before
    assert desk.dropped == []


def test_other_ways_do_not_displace_a_hand_over(desk: Desk) -> None:
    """While a model hands over, nothing else is taken up."""
    desk.hand_over(model("vllm"))
    assert desk.fall_back(model("x", SightKind.SHARED_PID)) is None
    assert names(desk) == ["vllm"]


def test_the_same_name_after_its_end_is_the_next_life(desk: Desk) -> None:
    """A new cgroup under a known name goes on with that model, once the old process has ended."""
    old, new = model("vllm"), model("vllm", pid=2)
    watch = desk.hand_over(old)
    watch.ends["cgroup_oom"] = 1
    watch.died = at(5)
    assert desk.hand_over(new) is watch
    assert watch.ends == {"cgroup_oom": 1}
    assert desk.closed == [old]


def test_the_same_name_while_it_lives_is_another_model(desk: Desk) -> None:
    """Two containers that both call themselves `python` are two models."""
    desk.hand_over(model("python"))
    desk.hand_over(model("python", pid=2))
    desk.hand_over(model("python", pid=3))
    assert names(desk) == ["python", "python-2", "python-3"]


def test_a_known_cgroup_is_found_again(desk: Desk) -> None:
    """A second process of the same cgroup belongs to the same model."""
    seen = model("vllm")
    assert desk.hand_over(seen) is desk.hand_over(seen)


def test_an_ended_model_is_not_replaced_by_a_worse_sight(desk: Desk) -> None:
    """After the end seen through a shared PID namespace, our own cgroup says less than the last word of the model."""
    desk.fall_back(model("stand-in", SightKind.SHARED_PID))
    watch = next(iter(desk.watches))
    watch.died = at(5)
    assert desk.fall_back(model("stand-in", SightKind.OWN)) is None
    assert desk.fall_back(None) is None
    assert watch.sight is SightKind.SHARED_PID
    assert desk.fall_back(model("stand-in", SightKind.SHARED_PID, pid=2)) is watch


def test_a_model_that_answers_after_its_end_is_not_held_dead(desk: Desk) -> None:
    """A success of a probe that began after the end proves a living server: the dead process is laid down."""
    seen = model("vllm")
    watch = desk.hand_over(seen)
    watch.died = at(5)
    tries = [(4, ProbeOutcome.OK), (6, ProbeOutcome.REFUSED), (7, ProbeOutcome.OK)]
    outlived = [desk.watches.lay_down_outlived(probed(watch, *one)) for one in tries]
    assert outlived == [False, False, True]
    assert watch.sight is SightKind.NONE
    assert watch.died is None
    assert desk.closed == [seen]


def probed(watch: Watch, started: float, outcome: ProbeOutcome) -> Watch:
    """Give the watch a finished probe."""
    watch.prober.last = Known(ProbeResult(started=at(started), latency_seconds=0.1, outcome=outcome))
    return watch


def begin(desk: Desk, name: str, pid: int, seconds: float) -> Watch:
    """A model hands over and begins its life."""
    watch = desk.hand_over(model(name, pid=pid))
    watch.begin_life(f"s{pid}", at(seconds))
    return watch


def test_an_ended_model_is_history_once_another_began(desk: Desk) -> None:
    """A model that began before the end is no successor; one that began after it is, also once that one ended."""
    one, other = begin(desk, "one", 1, 0), begin(desk, "other", 2, 1)
    one.died = at(5)
    assert not desk.watches.is_history(one)
    late = begin(desk, "late", 3, 6)
    assert desk.watches.is_history(one)
    late.died = at(7)
    assert [desk.watches.is_history(watch) for watch in (one, other, late)] == [True, False, False]
    one.begin_life("s4", at(8))
    assert not desk.watches.is_history(one)
    assert desk.watches.is_history(late)


def test_only_the_last_ended_models_are_watched(desk: Desk) -> None:
    """A loop that gives each server a new name does not fill the sidecar; what lives or is missed stays."""
    lasting = begin(desk, "lasting", 999, 0)
    for number in range(1, 41):
        begin(desk, f"job-{number}", number, 2 * number).died = at(2 * number + 1)
    begin(desk, "next", 41, 100)
    assert begin(desk, "last", 42, 101) in list(desk.watches)
    assert names(desk) == ["lasting", *(f"job-{n}" for n in range(41 - KEPT_HISTORY, 41)), "next", "last"]
    assert desk.dropped == [f"job-{number}" for number in range(1, 41 - KEPT_HISTORY)]
    assert len(desk.closed) == len(desk.dropped)
    assert lasting.sight is SightKind.HANDOVER
    oldest = f"job-{41 - KEPT_HISTORY}"
    begin(desk, "one-more", 43, 102).died = at(103)
    begin(desk, "another", 44, 104)
    assert begin(desk, oldest, 45, 105) is desk.watches.find(oldest), "its next life is no history"


def test_a_job_that_has_done_its_work_is_history_once_its_cgroup_is_gone(desk: Desk, tmp_path: Path) -> None:
    """Exit status 0 alone may be a server that will be started again in the same container."""
    file = tmp_path / "memory.current"
    file.write_text("4096\n")
    kept = Reader().keep(str(file))
    assert isinstance(kept, KeptFile)
    seen = model("convert")
    seen.levels = (
        SeenLevel(id=LevelId(1, 1), name="/", depth=0, version=CgroupVersion.V2, files={"memory.current": kept}),
    )
    watch = desk.hand_over(seen)
    watch.died, watch.left_well = at(5), True
    assert watch.reader is not None
    watch.reader.read_levels(full=True)
    assert not desk.watches.is_history(watch)
    watch.reader.levels[0].gone = True
    assert desk.watches.is_history(watch)
    watch.left_well = False
    assert not desk.watches.is_history(watch)
    kept.close()


def test_a_successor_that_answers_the_probe_does_not_revive_the_ended(desk: Desk) -> None:
    """One probe for all models: the answer after the end may be that of the model which began after it."""
    watch = begin(desk, "one", 1, 0)
    watch.died = at(5)
    begin(desk, "late", 2, 6)
    assert not desk.watches.lay_down_outlived(probed(watch, 7, ProbeOutcome.OK))
    assert watch.sight is SightKind.HANDOVER


def test_a_server_that_was_started_before_the_old_one_stopped_is_its_successor(desk: Desk) -> None:
    """Both go by one name, so the end of the old one fails nobody; one of another name is none."""
    old, other = begin(desk, "llm", 1, 0), begin(desk, "other", 3, 1)
    old.died = at(5)
    assert not desk.watches.is_history(old)
    old.died = None
    new = begin(desk, "llm", 2, 4)
    assert new.name == "llm-2"
    old.died = at(5)
    assert desk.watches.is_history(old)
    assert not desk.watches.is_history(new)
    assert not desk.watches.is_history(other)
    new.died = at(6)
    assert not desk.watches.is_history(old)


def asked_at(watch: Watch, place: str) -> Watch:
    """Have the watch's model be probed there."""
    watch.prober = Prober(ProbeTarget.parse(place), Rules(), VirtualClock(), lambda _: None)
    return watch


def test_an_answer_where_another_living_model_is_asked_proves_nothing(desk: Desk) -> None:
    """One address for all models: the living one answers it, and the dead one stays dead."""
    place = "http://127.0.0.1:8000/health"
    dead, other = asked_at(begin(desk, "dead", 1, 0), place), asked_at(begin(desk, "other", 2, 1), place)
    assert desk.watches.sharing_a_probe() == {place: ["dead", "other"]}
    dead.died = at(5)
    assert desk.watches.sharing_a_probe() == {}
    assert not desk.watches.lay_down_outlived(probed(dead, 7, ProbeOutcome.OK))
    asked_at(other, "tcp://127.0.0.1:8001")
    assert desk.watches.lay_down_outlived(dead)


def test_a_new_life_starts_the_judgement_anew_and_a_known_one_goes_on(desk: Desk) -> None:
    """After a restart of the sidecar the remembered judgement of a living process counts on."""
    watch = desk.hand_over(model("vllm"))
    watch.memory = JudgeMemory(session="s1", started=True)
    watch.begin_life("s1", at(1))
    assert watch.memory.started
    watch.begin_life("s2", at(2))
    assert watch.memory == JudgeMemory()


def test_an_answer_of_the_old_process_says_nothing_about_the_new_one(desk: Desk) -> None:
    """The last answer belongs to the life it was asked in: a new one starts unanswered."""
    watch = desk.hand_over(model("vllm"))
    watch.begin_life("s1", at(0))
    watch.prober.last = Known(ProbeResult(started=at(4), latency_seconds=0.1, outcome=ProbeOutcome.OK))
    watch.begin_life("s2", at(6))
    assert isinstance(watch.prober.last, Unknown)


def test_the_answer_that_proves_a_new_process_counts_for_it(desk: Desk) -> None:
    """A model that answers after its end is judged by that very answer."""
    watch = desk.hand_over(model("vllm"))
    watch.died = at(5)
    watch.prober.last = Known(ProbeResult(started=at(7), latency_seconds=0.1, outcome=ProbeOutcome.OK))
    assert desk.watches.lay_down_outlived(watch)
    assert isinstance(watch.prober.last, Known)
