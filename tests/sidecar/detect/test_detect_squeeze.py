"""Reclaim and thrash: what counts as memory pressure and what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.model import Known, Unknown, Why
from sidecar.detect import reclaim
from sidecar.detect.squeeze import Squeeze, measure
from sidecar.detect.values import CannotTell, Finding, Quiet, Severity
from sidecar.health.values import Pressure
from sidecar.history import History
from sidecar.sample import SightKind
from tests.sidecar import making as make

Made = Callable[[float], make.V2 | make.V1]


def watch(made: Made, seconds: float = 12.0) -> History:
    """Sample twice a second."""
    history = History.start(make.sample(0.0, make.level(made(0.0))))
    for tick in range(1, int(seconds * 2) + 1):
        history = history.append(make.sample(tick / 2, make.level(made(tick / 2))))
    return history


def squeeze(made: Made, seconds: float = 12.0) -> Squeeze:
    """Measure at the end."""
    found = measure(watch(made, seconds))
    assert isinstance(found, Known)
    return found.value


def stalled(some: float, full: float) -> Made:
    """Stall on memory for these shares of the time."""
    return lambda now: make.V2(memory_us=(int(some * now * 1e6), int(full * now * 1e6)))


def refaulting(refaults: float, majfaults: float, io: tuple[float, float], memory: float = 0.0) -> Made:
    """Read evicted pages again at this rate, with these io stalls."""

    def made(now: float) -> make.V2:
        return make.V2(
            refaults=int(refaults * now),
            majfaults=int(majfaults * now),
            io_us=(int(io[0] * now * 1e6), int(io[1] * now * 1e6)),
            memory_us=(int(memory * now * 1e6), 0),
        )

    return made


@pytest.mark.parametrize(
    ("made", "pressure"),
    [
        pytest.param(stalled(0.0, 0.0), Pressure.NONE, id="idle"),
        pytest.param(stalled(0.05, 0.02), Pressure.NONE, id="everyday-noise"),
        pytest.param(stalled(0.216, 0.138), Pressure.RECLAIM, id="700-MiB-mapped-in-256"),
        pytest.param(stalled(0.50, 0.38), Pressure.THRASH, id="stuck-at-memory.high"),
        pytest.param(refaulting(50000, 900, (0.6, 0.40), 0.005), Pressure.THRASH, id="slow-disk-psi-0.5-io-40"),
        pytest.param(refaulting(1200, 1600, (0.05, 0.02)), Pressure.RECLAIM, id="random-reads-of-a-fast-disk"),
        pytest.param(refaulting(0, 0, (0.9, 0.8)), Pressure.NONE, id="a-cold-load-from-a-slow-disk"),
        pytest.param(refaulting(3, 2, (0.9, 0.8)), Pressure.NONE, id="slow-disk-few-refaults"),
    ],
)
def test_pressure_is_told_from_its_signs(made: Made, pressure: Pressure) -> None:
    """Measured kinds of load give the pressure that a person would call it."""
    assert pressure is squeeze(made).pressure


def test_pressure_says_its_numbers() -> None:
    """What is measured is said with share and window."""
    found = squeeze(stalled(0.216, 0.138))
    assert any("21.6 %" in text and "5.0 s" in text for text in found.because)


def test_a_short_stall_after_the_start_is_no_thrash() -> None:
    """With half a second watched, 0.2 s of stall are 4 % of the last five seconds, not 40."""
    assert squeeze(stalled(0.4, 0.3), 0.5).pressure is Pressure.NONE


def test_old_pressure_is_over() -> None:
    """Ten seconds after the last stall nothing is left of it."""
    assert squeeze(lambda now: make.V2(memory_us=(int(min(now, 2.0) * 1e6), 0)), 12.5).pressure is Pressure.NONE


def test_without_pressure_files_faults_tell_reclaim() -> None:
    """On cgroup v1 without a v2 tree refaults with major faults count, and what is missing is said."""
    found = squeeze(lambda now: make.V1(refaults=int(5000 * now), majfaults=int(500 * now)))
    assert found.pressure is Pressure.RECLAIM
    assert [gap.where for gap in found.missing] == ["memory.pressure"]


def test_without_pressure_files_throttling_counts() -> None:
    """Where no pressure file says what it costs, throttling at memory.high is pressure."""

    def made(now: float) -> make.V2:
        return make.V2(memory_us=None, io_us=None, events={"high": int(66 * now)})

    assert squeeze(made).pressure is Pressure.RECLAIM


def test_no_sign_without_pressure_files_is_not_quiet() -> None:
    """The detector does not say that all is well when it could not read the stalls."""
    history = watch(lambda _: make.V2(memory_us=None, io_us=None))
    assert isinstance(reclaim.detect(history)[0], CannotTell)


def test_blind_on_both_sides_is_unknown() -> None:
    """Without pressure files and without memory.stat nothing is known."""
    history = watch(lambda _: make.V2(memory_us=None))
    level = history.latest.levels[0]
    blind = replace(level, memory=replace(level.memory, stat=make.NOT_SAMPLED))
    found = measure(history.append(make.sample(13.0, blind)))
    assert isinstance(found, Unknown)


def test_the_sidecars_own_cgroup_is_not_the_models() -> None:
    """Seeing only itself the sidecar does not take its own pressure for the model's."""
    history = watch(stalled(0.5, 0.4))
    found = measure(replace(history, latest=replace(history.latest, sight=SightKind.OWN)))
    assert isinstance(found, Unknown)
    assert found.why is Why.HIDDEN


@pytest.mark.parametrize(
    ("made", "severity"), [(stalled(0.216, 0.138), Severity.NOTICE), (stalled(0.5, 0.38), Severity.WARNING)]
)
def test_pressure_is_a_finding(made: Made, severity: Severity) -> None:
    """The detector passes the measurement on, thrash louder than reclaim."""
    found = reclaim.detect(watch(made))[0]
    assert isinstance(found, Finding)
    assert severity is found.severity
    assert found.observed >= found.threshold


def test_calm_is_quiet() -> None:
    """With pressure files and no stalls the detector is quiet."""
    assert reclaim.detect(watch(stalled(0.0, 0.0))) == (Quiet("reclaim"),)


_RANK = [Pressure.NONE, Pressure.RECLAIM, Pressure.THRASH]


@given(
    some=st.integers(0, 10**6),
    full=st.integers(0, 10**6),
    io=st.integers(0, 10**6),
    refaults=st.integers(0, 10000),
    more=st.tuples(*(st.integers(0, 10**6),) * 4),
)
def test_more_stall_is_never_less_pressure(some: int, full: int, io: int, refaults: int, more: tuple[int, ...]) -> None:
    """More stall or more refaults in the same tick never lower the pressure."""

    def last(extra: tuple[int, ...]) -> Pressure:
        made = make.V2(
            memory_us=(some + extra[0], full + extra[1]),
            io_us=(io + extra[2], io + extra[2]),
            refaults=refaults + extra[3],
            majfaults=refaults + extra[3],
        )
        history = watch(lambda _: make.V2(), 4.0).append(make.sample(5.0, make.level(made)))
        found = measure(history)
        assert isinstance(found, Known)
        return found.value.pressure

    assert _RANK.index(last(more)) >= _RANK.index(last((0, 0, 0, 0)))


def test_readahead_makes_few_faults_of_many_refaults() -> None:
    """Without pressure files: hundreds of megabytes a second read again are pressure, at few major faults as well."""
    found = squeeze(lambda now: make.V1(refaults=int(130_000 * now), majfaults=int(90 * now)))
    assert found.pressure is Pressure.RECLAIM


def test_a_file_read_again_and_again_by_calls_is_no_pressure_without_faults() -> None:
    """Reads of a file above the limit refault as much, and nothing that is mapped waits for the disk."""
    found = squeeze(lambda now: make.V1(refaults=int(130_000 * now), majfaults=int(2 * now)))
    assert found.pressure is Pressure.NONE
