"""One tick: read every model and the node on one clock, ask the detectors and the judge, write the board.

A tick costs little, as it runs ten times a second when a limit is near: counters, limits and the black box are read
every time; what changes slowly or costs more (status and io of processes, the node) once a second.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from guard.kernel import procfs
from guard.kernel.reader import KeptFile, Reader
from guard.link.protocol import Pressure
from guard.model import Known, Reading, Unknown
from sidecar.board import ModelView
from sidecar.detect import levels, time_to_limit
from sidecar.detect.run_all import next_tick_seconds, run_all
from sidecar.detect.values import Answer, Finding, Severity
from sidecar.endings import Endings
from sidecar.health.evidence import gather
from sidecar.health.judge import judge
from sidecar.history import History
from sidecar.hub import Hub
from sidecar.journal import Scalar
from sidecar.sample import Instant, NodeSample, Sample
from sidecar.sight.seen import SeenModel
from sidecar.watch import Watch
from sidecar.watches import Watches

_FULL_SECONDS: Final = 1.0
_FULL_SLACK_SECONDS: Final = 0.05  # ticks jitter
_PAGE_BYTES: Final = resource.getpagesize()

Tell: TypeAlias = Callable[[SeenModel, Pressure], object]
"""Pass a notice of pressure on to the guards of a model."""


class Ticker:
    """Ticks for ever in `run`; `tick` is one, and gives the pause until the next."""

    def __init__(self, hub: Hub, watches: Watches, endings: Endings, tell: Tell) -> None:
        self._hub = hub
        self._watches = watches
        self._endings = endings
        self._tell = tell
        self._ticks = 0
        self._node: NodeSample | None = None
        self._full_at_s = -math.inf
        self._statm = Reader().keep("/proc/self/statm")

    async def run(self) -> None:
        """Tick, pause, and so on."""
        while True:
            began = self._hub.clock.now().monotonic_s
            pause = self.tick()
            spent = self._hub.clock.now().monotonic_s - began
            await self._hub.clock.sleep(max(0.0, pause - spent))

    def tick(self) -> float:
        """Read, think and publish. A model that makes trouble is named and does not stop the others."""
        hub, now = self._hub, self._hub.clock.now()
        full = now.monotonic_s - self._full_at_s >= _FULL_SECONDS - _FULL_SLACK_SECONDS
        if full or self._node is None:
            self._full_at_s, self._node = now.monotonic_s, hub.node.read()
        pauses = [hub.settings.tick.longest_seconds]
        for watch in self._watches:
            try:
                pauses.append(self._one(watch, self._node, full=full))
                hub.degraded.clear(f"model {watch.name}")
            except Exception as exc:  # noqa: BLE001 - one model's trouble must not silence the others
                hub.degraded.set(f"model {watch.name}", f"{type(exc).__name__}: {exc}")
        self._ticks += 1
        pause = hub.settings.tick.fixed_seconds or max(hub.settings.tick.shortest_seconds, min(pauses))
        self._publish(now, pause)
        return pause

    def _one(self, watch: Watch, node: NodeSample, *, full: bool) -> float:
        hub = self._hub
        if self._watches.lay_down_outlived(watch):
            hub.journal.say(
                hub.clock.now(), watch.name, "sight_changed", "answers again, from a process that was not handed over"
            )
        sample = self._sample(watch, node, full=full)
        history = History.start(sample) if watch.history is None else watch.history.append(sample)
        answers = run_all(history)
        watch.memory, judgement = judge(watch.memory, gather(history), hub.settings.health)
        watch.quiet.tick(sample.at, sample.levels, node)
        self._say_what_changed(watch, sample.at, judgement.state.value, answers)
        if judgement.live:
            watch.failing_since = None
        elif watch.failing_since is None:
            watch.failing_since = sample.at
        watch.history, watch.answers, watch.judgement = history, answers, judgement
        hub.recorder.put_sample(sample, judgement)
        if full:
            hub.recorder.put_judge(watch.name, watch.memory)
        return next_tick_seconds(history, answers)

    def _sample(self, watch: Watch, node: NodeSample, *, full: bool) -> Sample:
        reader, now = watch.reader, self._hub.clock.now()
        processes = () if reader is None else reader.read_processes(full=full)
        sample = Sample(
            at=now,
            model=watch.name,
            sight=watch.sight,
            hidden_ancestors=reader is None or reader.seen.hidden_ancestors,
            levels=() if reader is None else reader.read_levels(full=full),
            processes=processes,
            node=node,
            probe=watch.prober.last,
            probe_in_flight_since=watch.prober.in_flight_since,
        )
        for process in () if reader is None else tuple(reader.processes):
            if not process.alive:  # noticed without a pidfd
                self._endings.ended(watch, process)
        return sample

    def _say_what_changed(self, watch: Watch, at: Instant, state: str, answers: tuple[Answer, ...]) -> None:
        say = self._hub.journal.say
        before = watch.judgement
        if before is None or before.state.value != state:
            was = None if before is None else before.state.value
            say(at, watch.name, "state_changed", f"{was or 'unseen'} -> {state}", {"from": was, "to": state})
        old, new = _findings(watch.answers), _findings(answers)
        for key, finding in new.items():
            if finding.detector == levels.LIMIT_CHANGED:
                say(at, watch.name, "limit_changed", finding.text, _fields(finding))
            elif key not in old:
                watch.warnings[finding.detector] = watch.warnings.get(finding.detector, 0) + 1
                say(at, watch.name, "warning", finding.text, _fields(finding))
        for key, finding in old.items():
            if key not in new and finding.detector != levels.LIMIT_CHANGED:
                say(at, watch.name, "warning_over", f"no longer: {finding.text}", {"detector": finding.detector})
        self._tell_guards(watch, _worst(old.values()), _worst(new.values()))

    def _tell_guards(self, watch: Watch, before: Finding | None, after: Finding | None) -> None:
        severities = tuple(None if finding is None else finding.severity for finding in (before, after))
        if watch.reader is None or severities[0] is severities[1]:
            return
        notice = Pressure("none", "over") if after is None else Pressure(after.severity.value, after.text)
        self._tell(watch.reader.seen, notice)

    def _publish(self, now: Instant, pause: float) -> None:
        hub = self._hub
        hub.board.models = {watch.name: _view(watch) for watch in self._watches if watch.judgement is not None}
        usage = resource.getrusage(resource.RUSAGE_SELF)
        hub.board.own = replace(
            hub.board.own,
            last_tick=now,
            tick_seconds=pause,
            ticks=self._ticks,
            degraded=hub.degraded.words(),
            rss_bytes=self._rss_bytes(),
            cpu_seconds=Known(usage.ru_utime + usage.ru_stime),
        )

    def _rss_bytes(self) -> Reading[int]:
        data = self._statm.read() if isinstance(self._statm, KeptFile) else self._statm
        statm = data if isinstance(data, Unknown) else procfs.parse_statm(data.value, "/proc/self/statm")
        return statm if isinstance(statm, Unknown) else Known(statm.value.resident_pages * _PAGE_BYTES)


def _view(watch: Watch) -> ModelView:
    assert watch.judgement is not None, "published after its first tick"
    return ModelView(
        name=watch.name,
        sample=None if watch.history is None else watch.history.latest,
        judgement=watch.judgement,
        answers=watch.answers,
        ends=MappingProxyType(dict(watch.ends)),
        incidents=watch.incidents,
        probes=watch.probes,
        warnings=MappingProxyType(dict(watch.warnings)),
        time_to_limit_seconds=_seconds_to_limit(watch.answers),
    )


def _seconds_to_limit(answers: tuple[Answer, ...]) -> Reading[float]:
    ours = [answer for answer in answers if answer.detector == time_to_limit.NAME]
    seconds = [answer.observed for answer in ours if isinstance(answer, Finding)]
    blind = [gap for answer in ours if not isinstance(answer, Finding) for gap in getattr(answer, "missing", ())]
    return Known(min(seconds)) if seconds else blind[0] if blind else Known(math.inf)


def _findings(answers: tuple[Answer, ...]) -> dict[tuple[str, str | None], Finding]:
    return {(answer.detector, answer.level): answer for answer in answers if isinstance(answer, Finding)}


def _worst(findings: Iterable[Finding]) -> Finding | None:
    """Give the loudest one that is worth telling the guard: a notice is none of its business."""
    loud = [finding for finding in findings if finding.severity is not Severity.NOTICE]
    return max(loud, key=lambda finding: finding.severity is Severity.CRITICAL, default=None)


def _fields(finding: Finding) -> dict[str, Scalar]:
    return {
        "detector": finding.detector,
        "severity": finding.severity.value,
        "level": finding.level,
        "observed": finding.observed,
        "threshold": finding.threshold,
        "unit": finding.unit,
        "window_seconds": finding.window_seconds,
    }
