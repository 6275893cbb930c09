"""What the judge remembers from one instant to the next, and the plain probe rule that it counts by.

The rule is the kubelet's: a probe every period, failed when not answered with success within the timeout, and the
model fails after so many failures in a row; one success clears them. A probe that is still in flight counts as the
plain prober would have counted by then: it would have given up at the timeout and asked again at every period.

Failures under excused work (a load, a declared compile) do not count, and after it the count starts afresh, as the
kubelet's liveness probe starts after the startup probe. The time without an answer between one piece of work and the
next is summed up all the same (`silent_s`): a thread that loads something every few seconds hides no hang for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from guard.model import Known, Unknown, Why
from sidecar.health.table import Standing
from sidecar.health.values import HealthEvidence, Rules
from sidecar.sample import ProbeOutcome, ProbeResult

_MOST_LOADED: Final = 64
"""Processes of a model that are known to have loaded; who still shows it comes first."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The crash of a process that held the model for its parent: an engine behind a front end."""

    parent_session: str
    at_s: float
    summary: str  # of its verdict


@dataclass(frozen=True, slots=True)
class WorkSeen:
    """An operation in flight, since it was seen first."""

    key: str
    since_s: float
    bytes_done: int | None  # by then
    moved_s: float  # its own words last moved


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMemory:
    """A value that can be written down and restored: plain fields, times on CLOCK_MONOTONIC in seconds.

    `None` in a time means that it has not happened in this life.
    """

    session: str | None = None
    first_s: float | None = None  # first judged
    last_s: float | None = None  # last judged
    answered: bool = False  # once in time
    started: bool = False
    probe_s: float | None = None  # start of the last probe counted
    failures: int = 0  # in a row, of finished probes
    answers: int = 0  # in a row, in time
    failed_s: float | None = None  # the plain rule has failed it since, without one answer
    loop_s: float | None = None  # last sign of the serving loop: tokens moved, or a late answer
    late_s: float | None = None  # an answer to a probe that was given up, counted last
    pressed_s: float | None = None  # last under pressure
    excused_s: float | None = None  # last with excused work
    silent_s: float = 0.0  # without an answer outside of excused work, in sum
    works: tuple[WorkSeen, ...] = ()  # in flight
    dead_s: float | None = None  # first judged with its main process ended
    shed: bool = False  # was ready, gave it up, and has not answered often enough since
    crashes: tuple[Crash, ...] = ()  # of engines that nothing has replaced so far
    loaded: tuple[str, ...] = ()  # sessions of processes that have loaded something; a black box forgets old loads


def of_this_life(memory: JudgeMemory, evidence: HealthEvidence) -> JudgeMemory:
    """Forget another life, and another boot: there the clock is behind what was remembered."""
    now, session = evidence.at.monotonic_s, evidence.session
    other = session is not None and memory.session is not None and session != memory.session
    if other or (memory.last_s is not None and now < memory.last_s):
        memory = JudgeMemory()
    first = now if memory.first_s is None else memory.first_s
    return replace(memory, session=session or memory.session, first_s=first)


def count(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules, *, excused: bool) -> JudgeMemory:
    """Count the last finished probe, once, and the serving loop's tokens."""
    now = evidence.at.monotonic_s
    memory = _count_silence(memory, evidence, rules, excused=excused)
    if excused:
        memory = replace(memory, excused_s=now, failures=0, failed_s=None)
    if evidence.loop_moved:
        memory = replace(memory, loop_s=now)
    late_s = None if evidence.heard_late is None else evidence.heard_late.monotonic_s
    if late_s is not None and late_s != memory.late_s:
        memory = replace(memory, late_s=late_s, loop_s=now, failed_s=None, silent_s=0.0)
    if isinstance(evidence.probe, Unknown) or evidence.probe.value.started.monotonic_s == memory.probe_s:
        return memory
    probe = evidence.probe.value
    memory = replace(memory, probe_s=probe.started.monotonic_s)
    failures = failures_of(probe, rules)
    if failures == 0:
        memory = replace(memory, answered=True, failures=0, answers=memory.answers + 1)
        return replace(memory, failed_s=None, loop_s=now, silent_s=0.0)
    if probe.outcome is ProbeOutcome.OK:  # late: no success for the plain rule, but the loop lives
        memory = replace(memory, loop_s=now, failed_s=None, silent_s=0.0)
    if memory.excused_s is not None and probe.started.monotonic_s <= memory.excused_s:
        return replace(memory, answers=0)
    return replace(memory, failures=memory.failures + failures, answers=0)


def _count_silence(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules, *, excused: bool) -> JudgeMemory:
    """Sum up the time without an answer outside of excused work; a pause of our own counts for one period at most."""
    now, last = evidence.at.monotonic_s, memory.last_s
    passed = 0.0 if last is None or excused else min(now - last, rules.period_seconds)
    nobody_asks = _is_unprobed(memory, evidence, rules) and (evidence.loop_moved or not evidence.loop_declared)
    return replace(memory, last_s=now, silent_s=0.0 if nobody_asks else memory.silent_s + passed)


def may_excuse(memory: JudgeMemory, rules: Rules) -> bool:
    """Say whether work may still excuse missing answers: what lies between pieces of it adds up to a hang as well."""
    return memory.silent_s < (rules.cap_seconds if memory.answered else rules.startup_seconds)


def failures_of(probe: ProbeResult, rules: Rules) -> int:
    """Say how many failures a plain prober would have counted by the end of this probe; 0 is a success."""
    if probe.outcome is ProbeOutcome.OK:
        return _overdue(probe.latency_seconds, rules)
    return max(1, _overdue(probe.latency_seconds, rules))


def _overdue(seconds: float, rules: Rules) -> int:
    late = seconds - rules.timeout_seconds
    return 1 + int(late // rules.period_seconds) if late > 0 else 0


def in_flight_failures(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> int:
    """Say how many failures a plain prober would have counted while the probe in flight has waited."""
    if evidence.probe_in_flight_since is None:
        return 0
    since = evidence.probe_in_flight_since.monotonic_s
    return _overdue(evidence.at.monotonic_s - _later(since, memory.excused_s), rules)


def standing(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> Standing:
    """Say how the model stands by the plain rule; loop tokens stand in where nobody probes."""
    if _is_unprobed(memory, evidence, rules):
        return _standing_by_loop(memory, evidence, rules)
    failures = memory.failures + in_flight_failures(memory, evidence, rules)
    if not memory.answered:
        return Standing.WAITING if memory.silent_s < rules.startup_seconds else Standing.FAILED
    return _by_failures(failures, rules, answered=memory.answers > 0)


def _by_failures(failures: int, rules: Rules, *, answered: bool) -> Standing:
    if failures >= rules.failure_threshold:
        return Standing.FAILED
    return Standing.ANSWERS if answered and failures == 0 else Standing.WAVERING


def replaced_in_time(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> bool:
    """Say whether a dead model may still be replaced before anybody would fail it.

    In a container that stands, a plain prober would be refused at every period from the end on. Where the container
    is gone nobody is probed; the next one may take the start-up time, as any new server. Where we do not probe, nothing
    is known of a next one that nobody handed over.
    """
    if evidence.removed and isinstance(evidence.probe, Unknown) and evidence.probe.why is Why.MISSING:
        return True
    dead = 0.0 if memory.dead_s is None else evidence.at.monotonic_s - memory.dead_s
    refused = rules.failure_threshold * rules.period_seconds
    return dead < (rules.startup_seconds if evidence.removed else refused)


def without_replaced(memory: JudgeMemory, evidence: HealthEvidence) -> JudgeMemory:
    """Forget crashes of engines whose front end has a living one, of its pool or the next; or needs none."""
    loaded = tuple(dict.fromkeys((*evidence.loaded, *memory.loaded)))[:_MOST_LOADED]
    lives = {*evidence.engines, *loaded}
    crashes = tuple(one for one in memory.crashes if one.parent_session not in lives)
    return replace(memory, loaded=loaded, crashes=crashes)


def engine_is_dead(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> bool:
    """Say whether an engine crashed, and was not replaced for as long as a plain prober waits before it fails one."""
    patience = rules.failure_threshold * rules.period_seconds
    return any(evidence.at.monotonic_s - one.at_s >= patience for one in memory.crashes)


def _is_unprobed(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> bool:
    """Tell a model that nobody probes from one whose first answer is not there yet, to us or to us come back."""
    if isinstance(evidence.probe, Known) or evidence.probe_in_flight_since is not None:
        return False
    waited = evidence.at.monotonic_s - _later(_first(memory, evidence), memory.probe_s)
    return evidence.probe.why is Why.MISSING or waited > 2 * rules.period_seconds


def _standing_by_loop(memory: JudgeMemory, evidence: HealthEvidence, rules: Rules) -> Standing:
    declared = isinstance(evidence.loop_progress, Known) and evidence.loop_declared
    if not declared or memory.loop_s is None:
        return Standing.UNPROBED
    silent = evidence.at.monotonic_s - _later(memory.loop_s, memory.excused_s)
    return _by_failures(_overdue(silent, rules), rules, answered=True)


def _first(memory: JudgeMemory, evidence: HealthEvidence) -> float:
    return evidence.at.monotonic_s if memory.first_s is None else memory.first_s


def _later(when: float, other: float | None) -> float:
    return when if other is None else max(when, other)
