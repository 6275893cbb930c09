"""Time to limit: warns in time before anonymous growth, and about nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.model import Known
from sidecar.detect import time_to_limit
from sidecar.detect.run_all import next_tick_seconds, run_all
from sidecar.detect.values import CannotTell, Finding, Quiet, Severity
from sidecar.history import History
from sidecar.sample import Sample, SightKind
from tests.sidecar import making as make
from tests.sidecar.making import MIB

LIMIT = 256 * MIB
Made = Callable[[float], make.V2]


def live(made: Made, until: float, work: Callable[[float], make.Work] | None = None) -> Iterator[History]:
    """Tick as the sidecar does, at the pace that the detectors ask for."""
    now = 0.0
    history: History | None = None
    while now <= until:
        sample = make.sample(now, make.level(made(now)), work=None if work is None else work(now))
        history = History.start(sample) if history is None else history.append(sample)
        yield history
        now += next_tick_seconds(history, run_all(history))


def warnings(history: History) -> list[Finding]:
    """Give the findings of this detector."""
    return [answer for answer in time_to_limit.detect(history) if isinstance(answer, Finding)]


def growing(rate: float, *, begin: float = 5.0, base: int = 10 * MIB, limit: int = LIMIT) -> Made:
    """Hold still, then grow in anonymous memory by so many MiB a second."""
    return lambda now: make.V2(anon=base + int(max(0.0, now - begin) * rate * MIB), limit=str(limit))


@pytest.mark.parametrize(("rate", "lead"), [(20, 8.0), (50, 3.0), (200, 0.7)])
def test_growth_is_warned_of_in_time(rate: int, lead: float) -> None:
    """From a quiet start in 256 MiB the first warning comes as long before death as promised."""
    death = 5.0 + 246 / rate
    first = next(h.latest.at.monotonic_s for h in live(growing(rate), death) if warnings(h))
    assert death - first >= lead


@pytest.mark.parametrize("rate", [20, 50, 200])
def test_a_warning_stays_until_the_limit(rate: int) -> None:
    """Steady growth is warned of once: the warning does not come and go."""
    told = [bool(warnings(h)) for h in live(growing(rate), 5.0 + 246 / rate)]
    assert told == sorted(told)


def test_a_warning_becomes_critical() -> None:
    """Close to the limit the warning gets louder, and never softer while growth goes on."""
    heard = [found[0].severity for h in live(growing(20), 17.2) if (found := warnings(h))]
    assert heard[0] is Severity.WARNING
    assert heard[-1] is Severity.CRITICAL
    assert heard == sorted(heard, key=[Severity.WARNING, Severity.CRITICAL].index)


def test_a_warning_carries_its_numbers() -> None:
    """A finding says pace, what is left, the level and the window."""
    *_, last = live(growing(20), 10.0)
    found = warnings(last)[0]
    assert found.level == "/pod/model"
    assert found.observed == pytest.approx((246 - 100) / 20, rel=0.1)
    assert "20.0 MiB/s" in found.text
    assert found.unit == "seconds"
    assert found.window_seconds > 0


def test_the_worst_level_is_warned_of() -> None:
    """A limit of the pod that is nearer than the container's own is found."""
    history = None
    for tick in range(40):
        held = make.V2(anon=(10 + 2 * tick) * MIB, limit=str(1 << 34))
        above = replace(held, limit=str(128 * MIB))
        sample = make.sample(tick / 10, make.level(held), make.level(above, depth=1))
        history = History.start(sample) if history is None else history.append(sample)
    assert history is not None
    assert [found.level for found in warnings(history)] == ["/pod"]


def test_page_cache_that_fills_the_limit_is_no_warning() -> None:
    """Clean page cache up to the limit at 500 MiB/s is harmless."""

    def filling(now: float) -> make.V2:
        return make.V2(anon=20 * MIB, cache=min(236 * MIB, int(now * 500 * MIB)), limit=str(LIMIT))

    assert not any(warnings(h) for h in live(filling, 10.0))


def test_a_file_being_written_is_no_warning() -> None:
    """Dirty pages that wait for the disk are no growth and take no room, also where they fill the limit (v1)."""

    def writing(now: float) -> make.V2:
        dirty = min(225 * MIB, int(now * 200 * MIB))
        return make.V2(anon=20 * MIB + int(now * 0.5 * MIB), cache=dirty, dirty=dirty, limit=str(LIMIT))

    assert not any(warnings(h) for h in live(writing, 10.0))


@pytest.mark.parametrize("size", [16, 64, 150])
def test_one_jump_is_no_warning(size: int) -> None:
    """A single allocation, however large, is no pace."""

    def jumping(now: float) -> make.V2:
        return make.V2(anon=(20 + (size if now > 6.03 else 0)) * MIB, limit=str(LIMIT))

    assert not any(warnings(h) for h in live(jumping, 20.0))


def test_an_allocator_that_warms_up_is_no_warning() -> None:
    """A few MiB of start-up growth far from the limit are no warning, however fast."""

    def warming(now: float) -> make.V2:
        return make.V2(anon=10 * MIB + min(20 * MIB, int(now * 100 * MIB)), limit=str(LIMIT))

    assert not any(warnings(h) for h in live(warming, 10.0))


def test_memory_that_goes_up_and_down_is_no_warning() -> None:
    """Requests that take and give back 30 MiB around a level are no growth."""

    def breathing(now: float) -> make.V2:
        return make.V2(anon=(100 + (30 if int(now * 4) % 2 else 0)) * MIB, limit=str(LIMIT))

    assert not any(warnings(h) for h in live(breathing, 20.0))


@pytest.mark.parametrize(("done_told", "label"), [(False, "torch.load"), (True, "my.loader")])
def test_a_load_that_fits_is_no_warning(label: str, *, done_told: bool) -> None:
    """A load that says what it needs explains its growth, whether or not it counts its bytes, and after its end too."""

    def loading(now: float) -> make.V2:
        return make.V2(anon=20 * MIB + min(200 * MIB, int(max(0.0, now - 2) * 100 * MIB)), limit=str(LIMIT))

    def work(now: float) -> make.Work:
        done = int(max(0.0, now - 2) * 100 * MIB)
        operation = make.load(label, 200 * MIB, done=done if done_told else None, started=2.0)
        return make.Work(box=True, operations=(operation,) if 2.0 <= now <= 4.0 else ())

    assert not any(warnings(h) for h in live(loading, 15.0, work))


def test_growth_beside_a_load_that_does_not_fit_is_warned_of() -> None:
    """A load larger than what is left explains nothing."""
    operation = make.load("my.loader", 400 * MIB, started=5.0)
    told = live(growing(50), 9.0, lambda now: make.Work(box=True, operations=(operation,) if now >= 5 else ()))
    assert any(warnings(h) for h in told)


def test_a_leak_after_a_load_is_warned_of() -> None:
    """Once a load has ended, growth that goes on is a leak."""
    operation = make.load("my.loader", 50 * MIB, started=5.0)

    def work(now: float) -> make.Work:
        return make.Work(box=True, operations=(operation,) if 5.0 <= now <= 6.0 else ())

    assert any(warnings(h) for h in live(growing(50), 9.0, work))


def test_no_limit_is_quiet() -> None:
    """Growth without any limit has nothing to meet."""
    *_, last = live(lambda now: make.V2(anon=int(now * 100 * MIB)), 3.0)
    assert time_to_limit.detect(last) == (Quiet("time_to_limit"),)


def test_a_limit_that_cannot_be_read_is_not_quiet() -> None:
    """Without the memory of a limited level the detector says that it cannot tell."""
    level = make.level(make.V2(limit=str(LIMIT)))
    blind = replace(level, memory=replace(level.memory, stat=make.NOT_SAMPLED))
    answers = time_to_limit.detect(History.start(make.sample(0.0, blind)))
    assert answers == (CannotTell("time_to_limit", (make.NOT_SAMPLED,)),)


def test_the_sidecars_own_cgroup_is_not_the_models() -> None:
    """With sight of its own cgroup alone the detector says nothing about the model."""
    *_, last = live(growing(50), 8.0)
    history = replace(last, latest=replace(last.latest, sight=SightKind.OWN))
    assert isinstance(time_to_limit.detect(history)[0], CannotTell)


def with_latest(history: History, change: Callable[[make.V2], make.V2], made: make.V2) -> History:
    """Give the same history with another last tick."""
    before = replace(history, points=history.points[:-1])
    sample: Sample = make.sample(history.latest.at.monotonic_s, make.level(change(made)))
    return before.append(sample)


@given(
    anon=st.lists(st.integers(0, 250), min_size=5, max_size=60),
    more=st.integers(0, 200),
    less=st.integers(0, 200),
)
def test_more_pressure_never_clears_a_warning(anon: list[int], more: int, less: int) -> None:
    """With more memory held or a lower limit at the same tick a warning stays and is at least as loud."""
    history: History | None = None
    for tick, held in enumerate(anon):
        sample = make.sample(tick / 10, make.level(make.V2(anon=held * MIB, limit=str(LIMIT))))
        history = History.start(sample) if history is None else history.append(sample)
    assert history is not None
    last = make.V2(anon=anon[-1] * MIB, limit=str(LIMIT))

    def worse(made: make.V2) -> make.V2:
        return replace(made, anon=made.anon + more * MIB, limit=str(LIMIT - less * MIB))

    before, after = warnings(history), warnings(with_latest(history, worse, last))
    assert len(after) >= len(before)
    for calm, harder in zip(before, after, strict=False):
        assert harder.observed <= calm.observed


def test_ticks_come_faster_as_the_limit_nears() -> None:
    """The pause is a second far from any limit, and shrinks with the room that is left."""
    pauses = []
    for held in (0, 6 << 30, 7 << 30, 8 << 30):
        sample = make.sample(0.0, make.level(make.V2(anon=held, limit=str(8 << 30))))
        pauses.append(next_tick_seconds(History.start(sample), ()))
    assert pauses[0] == 1.0
    assert pauses[-1] == pytest.approx(0.1)
    assert all(later <= sooner for sooner, later in pairwise(pauses))


def test_a_load_in_flight_is_watched_closely() -> None:
    """With a load in flight the pause is the shortest."""
    work = make.Work(operations=(make.load("torch.load", None),))
    history = History.start(make.sample(0.0, make.level(make.V2()), work=work))
    assert next_tick_seconds(history, ()) == pytest.approx(0.1)


def test_swap_is_room() -> None:
    """What swap can take counts as room: the same growth is no warning with swap."""
    history = None
    for tick in range(60):
        made = make.V2(anon=(10 + 2 * tick) * MIB, limit=str(LIMIT), swap_max="max")
        sample = make.sample(tick / 10, make.level(made))
        node = replace(sample.node, meminfo=Known({"SwapFree": 1 << 36}))
        sample = replace(sample, node=node)
        history = History.start(sample) if history is None else history.append(sample)
    assert history is not None
    assert not warnings(history)


def test_growth_past_what_a_load_needs_is_warned_of() -> None:
    """A load still in flight that has taken more than it could need explains no more growth."""
    operation = make.load("my.loader", 50 * MIB, started=5.0)
    told = live(growing(50), 9.0, lambda now: make.Work(box=True, operations=(operation,) if now >= 5 else ()))
    assert any(warnings(h) for h in told)


def test_an_unlimited_level_beside_a_load_is_quiet() -> None:
    """A load below no limit explains its growth like any other that fits."""
    work = make.Work(operations=(make.load("torch.load", 500 * MIB),))
    history = History.start(make.sample(0.0, make.level(make.V2()), work=work))
    assert time_to_limit.detect(history) == (Quiet("time_to_limit"),)


def test_a_gap_in_the_readings_starts_the_slope_afresh() -> None:
    """Readings before one that failed are not joined with those after it to a slope."""
    history: History | None = None
    for tick in range(40):
        level = make.level(make.V2(anon=(10 if tick < 36 else 200) * MIB, limit=str(LIMIT)))
        if tick == 35:
            level = replace(level, memory=replace(level.memory, stat=make.NOT_SAMPLED))
        sample = make.sample(tick / 10, level)
        history = History.start(sample) if history is None else history.append(sample)
    assert history is not None
    assert not warnings(history)
