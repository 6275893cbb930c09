"""One tick: read every model and the node on one clock, ask the detectors and the judge, write the board.

Theory
    * A limit that is near needs a look ten times a second, everything else one a second. So there are full ticks, about
      one a second, and lean ones between them. A lean one glances at the levels with a limit; only if
      room has shrunk does it read their counters, limits and the operations in flight, and ask the two detectors that
      live on them. So a steady model costs next to nothing, however near its limit it is.
    * Stall times and rates are differences over a second and more: they, the judge and the board follow full ticks.
    * What must not wait (an end, a verdict) asks for a full tick at once.
"""

from __future__ import annotations

import asyncio
import math
import resource
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from guard.kernel import procfs
from guard.kernel.reader import KeptFile, Reader
from guard.link.protocol import Pressure
from guard.model import Known, Reading, Unknown
from sidecar import gpu_changes, pressure
from sidecar.board import ModelView
from sidecar.collect.model import ModelReader
from sidecar.detect import levels, load_fit, time_to_limit
from sidecar.detect.run_all import DETECTORS, next_tick_seconds
from sidecar.detect.values import Answer, Finding
from sidecar.endings import Endings
from sidecar.health.evidence import gather
from sidecar.health.judge import judge
from sidecar.health.values import Judgement
from sidecar.history import History, Point
from sidecar.hub import Hub
from sidecar.journal import Scalar
from sidecar.sample import NO_GPU, GpuSample, Instant, NodeSample, Sample, SightKind
from sidecar.sight.seen import SeenModel
from sidecar.units import human_seconds
from sidecar.watch import Watch
from sidecar.watches import Watches

_FULL_SECONDS: Final = 1.0
_FULL_SLACK_SECONDS: Final = 0.05  # ticks jitter
_PAGE_BYTES: Final = resource.getpagesize()

_STALL_SECONDS: Final = 2.0  # a tick takes milliseconds
_LEAST_BYTES: Final = 256 << 10
_LEAST_SHIFT: Final = 12  # a 4096th of the room: growth that needs minutes is left to full ticks

Tell: TypeAlias = Callable[[SeenModel, Pressure], object]
"""Pass a notice of pressure on to the guards of a model."""


_CLOSE: Final = (time_to_limit.detect, load_fit.detect)
_OTHERS: Final = tuple(detect for detect in DETECTORS if detect not in _CLOSE)


class Ticker:
    """Ticks for ever in `run`; `tick` is one, and gives the pause until the next."""

    def __init__(self, hub: Hub, watches: Watches, endings: Endings, tell: Tell) -> None:
        self._hub = hub
        self._watches = watches
        self._endings = endings
        self._tell = tell
        self._ticks = 0
        self._node: NodeSample | None = None
        self._gpu: Reading[GpuSample] = NO_GPU
        self._full_at_s = -math.inf
        self._statm = Reader().keep("/proc/self/statm")

    async def run(self) -> None:
        """Tick, pause, and so on, until a tick fails.

        By timers: a task that sleeps between ticks would wake the loop twice for each, a tenth of what a tick costs.
        """
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[None] = loop.create_future()
        timer: asyncio.TimerHandle | None = None

        def tick(due_s: float) -> None:
            nonlocal timer
            try:
                now = self._hub.clock.now()
                self._say_stall(now, due_s)
                due_s = now.monotonic_s + self._tick(now, at_once=False)
                timer = loop.call_later(max(0.0, due_s - self._hub.clock.now().monotonic_s), tick, due_s)
            except Exception as exc:  # noqa: BLE001 - whoever awaits gets it
                if not failed.done():  # cancelled in this very turn of the loop
                    failed.set_exception(exc)

        tick(self._hub.clock.now().monotonic_s)
        try:
            await failed
        finally:
            if timer is not None:
                timer.cancel()

    def _say_stall(self, now: Instant, due_s: float) -> None:
        """Say when the sidecar itself stood still: starved of CPU, stopped, or reclaimed like everybody else."""
        late = now.monotonic_s - due_s
        if late >= _STALL_SECONDS:
            text = f"the sidecar itself stood still for {human_seconds(late)}; that time is held against no model"
            self._hub.journal.say(now, "", "sidecar_stalled", text, {"seconds": round(late, 3)})

    def tick(self, *, at_once: bool = False) -> float:
        """Read, think and publish; `at_once` makes it a full tick. Trouble with one model does not stop the others."""
        return self._tick(self._hub.clock.now(), at_once=at_once)

    def _tick(self, now: Instant, *, at_once: bool) -> float:
        hub = self._hub
        full = at_once or now.monotonic_s - self._full_at_s >= _FULL_SECONDS - _FULL_SLACK_SECONDS
        if full or self._node is None:
            self._full_at_s, self._node = now.monotonic_s, hub.node.read()
            hub.nodes.add(now, self._node)
            self._look_at_gpus(now)
        pauses = [hub.settings.tick.longest_seconds]
        for watch in self._watches:
            try:
                pauses.append(self._full(watch, self._node) if full else self._lean(watch, self._node))
            except Exception as exc:  # noqa: BLE001 - one model's trouble must not silence the others
                hub.degraded.set(f"model {watch.name}", f"{type(exc).__name__}: {exc}")
        if full:
            self._say_shared_probes()
        self._ticks += 1
        pause = hub.settings.tick.fixed_seconds or max(hub.settings.tick.shortest_seconds, min(pauses))
        if full:
            self._publish(now, pause)
        return pause

    def _say_shared_probes(self) -> None:
        """Say that one answer stands for several models: of all but one of them nothing is known by it."""
        shared = self._watches.sharing_a_probe()
        said = (f"{place} is asked for {', '.join(names)}" for place, names in shared.items())
        if shared:
            words = f"{'; '.join(said)}: whose answer it is cannot be told, so give each model a probe of its own"
            self._hub.degraded.set("probe", f"{words}, NAME=URL or NAME=none")
        else:
            self._hub.degraded.clear("probe")

    def _look_at_gpus(self, now: Instant) -> None:
        """Take the last reading, and say what is new."""
        hub, before = self._hub, self._gpu
        self._gpu = hub.gpu()
        for change in gpu_changes.changes(before, self._gpu):
            fields = {"gpu": change.gpu, "uuid": change.uuid, "code": change.code, "count": change.count}
            hub.journal.say(now, "", change.kind, change.text, fields)
        words = gpu_changes.trouble(self._gpu)
        if words is None:
            hub.degraded.clear("gpu")
        else:
            hub.degraded.set("gpu", words)

    def _full(self, watch: Watch, node: NodeSample) -> float:
        hub = self._hub
        if self._watches.lay_down_outlived(watch):
            text = "answers again, from a process that was not handed over"
            hub.journal.say(hub.clock.now(), watch.name, "sight_changed", text)
        sample = self._sample(watch, node, full=True)
        close_history = _grown(watch.close_history, sample)
        watch.history = _grown(watch.history, sample, close_history.points[-1])
        watch.memory, judgement = judge(watch.memory, gather(watch.history), hub.settings.health)
        self._say_state(watch, judgement)
        self._say_answers(watch, sample.at)
        watch.room_bytes = None if watch.reader is None else watch.reader.glance()
        others = tuple(answer for detect in _OTHERS for answer in detect(watch.history))
        watch.judgement = judgement
        pause = self._close(watch, close_history, others)
        hub.recorder.put_judge(watch.name, watch.memory)
        hub.degraded.clear(f"model {watch.name}")
        return pause

    def _lean(self, watch: Watch, node: NodeSample) -> float:
        """Look closely only at a model whose room has shrunk since the last close look."""
        room = None if watch.reader is None else watch.reader.glance()
        if room is None or not self._shrank(watch, room):
            return watch.pause_seconds
        sample = self._sample(watch, node, full=False)
        return self._close(watch, _grown(watch.close_history, sample), watch.other_answers)

    @staticmethod
    def _shrank(watch: Watch, room: int) -> bool:
        before = room if watch.room_bytes is None else max(room, watch.room_bytes)
        shrank = before - room > max(_LEAST_BYTES, before >> _LEAST_SHIFT)
        watch.room_bytes = room if shrank else before
        return shrank

    def _close(self, watch: Watch, history: History, others: tuple[Answer, ...]) -> float:
        """Do what every tick does, lean or full."""
        watch.close_history, sample = history, history.latest
        close = tuple(answer for detect in _CLOSE for answer in detect(history))
        self._say_findings(watch, sample.at, (*close, *others))
        watch.close_answers, watch.other_answers = close, others
        watch.quiet.tick(sample.at, sample.levels, sample.node)
        watch.unseen.tick(sample.at, sample.levels)
        self._endings.tell_unseen(watch, sample)
        self._hub.recorder.put_sample(sample, watch.judgement)
        watch.pause_seconds = next_tick_seconds(history, close)
        return watch.pause_seconds

    def _sample(self, watch: Watch, node: NodeSample, *, full: bool) -> Sample:
        reader = watch.reader
        sample = Sample(
            at=self._hub.clock.now(),
            model=watch.name,
            sight=watch.sight,
            hidden_ancestors=reader is None or reader.seen.hidden_ancestors,
            levels=() if reader is None else reader.read_levels(full=full),
            processes=() if reader is None else reader.read_processes(full=full),
            node=node,
            probe=watch.prober.last,
            probe_in_flight_since=watch.prober.in_flight_since,
            probe_heard_late=watch.prober.heard_late,
            gpu=self._gpu,
        )
        if reader is not None:
            self._notice_ends(watch, reader)
        return sample

    def _notice_ends(self, watch: Watch, reader: ModelReader) -> None:
        """Notice ends that wake nobody: of processes without a pidfd, of containers whose processes are not seen."""
        for process in tuple(reader.processes):
            if not process.alive:
                self._endings.ended(watch, process)
        if not reader.processes and watch.sight is SightKind.HOST_CGROUP and reader.levels[0].gone:
            self._endings.vanished(watch)

    def _say_state(self, watch: Watch, judgement: Judgement) -> None:
        before, state = watch.judgement, judgement.state.value
        was = None if before is None else before.state.value
        if was != state:
            fields = {"from": was, "to": state, "reason": "; ".join(judgement.reasons)}
            self._hub.journal.say(judgement.at, watch.name, "state_changed", f"{was or 'unseen'} -> {state}", fields)
        if judgement.live:
            watch.failing_since = None
        elif watch.failing_since is None:
            watch.failing_since = judgement.at

    def _say_answers(self, watch: Watch, now: Instant) -> None:
        """Say when /livez began to fail for who asks it, and when it no longer did."""
        before, failing = watch.answered_failing, self._hub.livez.failing(watch.name, now)
        watch.answered_failing = failing
        if failing is not None and before is None:
            text = "/livez is answered with failure"
            self._hub.journal.say(failing.first, watch.name, "livez_failing", text, {"failures": failing.failures})
        elif failing is None and before is not None:
            text = f"/livez is no longer answered with failure, after {before.failures} times"
            self._hub.journal.say(now, watch.name, "livez_passing", text, {"failures": before.failures})

    def _say_findings(self, watch: Watch, at: Instant, answers: tuple[Answer, ...]) -> None:
        say = self._hub.journal.say
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
        if watch.reader is not None:
            watch.told, notice = pressure.step(watch.told, new.values(), at.monotonic_s)
            if notice is not None:
                self._tell(watch.reader.seen, notice)

    def _publish(self, now: Instant, pause: float) -> None:
        hub = self._hub
        hub.board.models = {
            watch.name: _view(watch, history=self._watches.is_history(watch))
            for watch in self._watches
            if watch.judgement is not None
        }
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


def _grown(history: History | None, sample: Sample, point: Point | None = None) -> History:
    return History.start(sample, point) if history is None else history.append(sample, point)


def _view(watch: Watch, *, history: bool) -> ModelView:
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
        supervised=watch.supervised,
        history=history,
    )


def _seconds_to_limit(answers: tuple[Answer, ...]) -> Reading[float]:
    ours = [answer for answer in answers if answer.detector == time_to_limit.NAME]
    seconds = [answer.observed for answer in ours if isinstance(answer, Finding)]
    blind = [gap for answer in ours if not isinstance(answer, Finding) for gap in getattr(answer, "missing", ())]
    return Known(min(seconds)) if seconds else blind[0] if blind else Known(math.inf)


def _findings(answers: tuple[Answer, ...]) -> dict[tuple[str, str | None], Finding]:
    return {(answer.detector, answer.level): answer for answer in answers if isinstance(answer, Finding)}


def _fields(finding: Finding) -> dict[str, Scalar]:
    return {
        "detector": finding.detector,
        "severity": finding.severity.value,
        "cgroup": finding.level,
        "observed": finding.observed,
        "threshold": finding.threshold,
        "unit": finding.unit,
        "window_seconds": finding.window_seconds,
    }
