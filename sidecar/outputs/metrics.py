"""`/metrics`: the board as Prometheus series, by a collector of its own over no global registry.

A reading that is not known makes no series: a missing line on a graph is honest, a zero is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from guard.kernel import memcg
from guard.kernel.values import CgroupVersion, MemoryLevel, Psi
from guard.model import Known, Limit, Operation, OperationKind, Reading, Unlimited
from sidecar.board import PROBE_BOUNDS_SECONDS, Board, ModelView, ProbeTally
from sidecar.detect.values import CannotTell, Finding, Severity
from sidecar.health.values import State
from sidecar.outputs import answers
from sidecar.outputs.metrics_gpu import put_gpus
from sidecar.outputs.metrics_table import TABLE
from sidecar.outputs.room import Room, room
from sidecar.outputs.shape import clean
from sidecar.outputs.status import operations
from sidecar.sample import Instant, LevelSample, NodeSample, ProcessSample, Sample, SightKind
from sidecar.verdict.values import EndClass

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
_FAMILIES: Final = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
_SEVERITY: Final = {Severity.NOTICE: 1, Severity.WARNING: 2, Severity.CRITICAL: 3}
_KINDS: Final = {  # label to line of memory.stat, v2 and v1; v1 has no line for the kernel's own memory
    "anon": ("anon", "rss"),
    "file": ("file", "cache"),
    "file_mapped": ("file_mapped", "mapped_file"),
    "file_dirty": ("file_dirty", "dirty"),
    "file_writeback": ("file_writeback", "writeback"),
    "shmem": ("shmem", "shmem"),
    "unevictable": ("unevictable", "unevictable"),
    "kernel": ("kernel", None),
    "slab": ("slab", None),
}
_REFAULTS: Final = {
    "anon": "workingset_refault_anon",  # 5.9+
    "file": "workingset_refault_file",
    "all": "workingset_refault",  # before 5.9
}
_STAT_COUNTERS: Final = {
    "oomguard_major_faults": "pgmajfault",
    "oomguard_scanned_pages": "pgscan",
    "oomguard_reclaimed_pages": "pgsteal",
}


class _Series:
    """The families being filled. A label set that comes twice keeps its first value: twice would fail the scrape."""

    def __init__(self) -> None:
        self.families: dict[str, Metric] = {
            row.name: _FAMILIES[row.kind](row.name, row.text, labels=row.labels) for row in TABLE
        }
        self._seen: set[tuple[str, tuple[str, ...]]] = set()

    def put(self, name: str, labels: tuple[str, ...], value: float | None) -> None:
        """Add one gauge or counter value; None adds nothing."""
        labels = tuple(map(clean, labels))
        if value is None or (name, labels) in self._seen:
            return
        self._seen.add((name, labels))
        family = self.families[name]
        assert isinstance(family, GaugeMetricFamily | CounterMetricFamily)
        family.add_metric(labels, value)

    def put_histogram(self, name: str, labels: tuple[str, ...], tally: ProbeTally) -> None:
        """Add one histogram; Prometheus wants its buckets cumulative."""
        family = self.families[name]
        assert isinstance(family, HistogramMetricFamily)
        total, buckets = 0, []
        for bound, count in zip((*PROBE_BOUNDS_SECONDS, inf), tally.buckets, strict=True):
            total += count
            buckets.append(("+Inf" if bound == inf else str(bound), total))
        family.add_metric(tuple(map(clean, labels)), buckets, tally.sum_seconds)


class BoardCollector(Collector):
    """A collector over one board at one instant."""

    def __init__(self, board: Board, now: Instant) -> None:
        self._board = board
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """Fill every family of the table; families without a sample are left out."""
        series, board = _Series(), self._board
        _own(series, board, self._now)
        for name, view in board.models.items():
            _model(series, board, view, self._now)
            if view.sample is not None:
                _sample(series, name, view.sample)
        samples = [view.sample for view in board.models.values() if view.sample is not None]
        if samples:
            newest = max(samples, key=lambda sample: sample.at)
            _node(series, newest.node)
            if isinstance(newest.gpu, Known):
                put_gpus(series.put, newest.gpu.value)
        _ends(series, board)
        return (family for family in series.families.values() if family.samples)


def render(board: Board, now: Instant) -> bytes:
    """Give all metrics in Prometheus' text format 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BoardCollector(board, now))
    return bytes(generate_latest(registry))


def number(reading: Reading[int] | Reading[float] | Reading[Limit]) -> float | None:
    """A reading as a sample value: None where unknown, +Inf where unlimited."""
    if not isinstance(reading, Known):
        return None
    return inf if isinstance(reading.value, Unlimited) else float(reading.value)


def _own(series: _Series, board: Board, now: Instant) -> None:
    own = board.own
    series.put("oomguard_sidecar_tick_age_seconds", (), answers.tick_age_seconds(own, now))
    series.put("oomguard_sidecar_tick_interval_seconds", (), own.tick_seconds)
    series.put("oomguard_sidecar_ticks", (), own.ticks)
    series.put("oomguard_sidecar_resident_bytes", (), number(own.rss_bytes))
    series.put("oomguard_sidecar_cpu_seconds", (), number(own.cpu_seconds))
    series.put("oomguard_sidecar_start_time_seconds", (), own.started.wall_s)
    series.put("oomguard_sidecar_degraded", (), len(own.degraded))


def _model(series: _Series, board: Board, view: ModelView, now: Instant) -> None:
    name, judgement = view.name, view.judgement
    for state in State:
        series.put("oomguard_model_state", (name, state.value), state is judgement.state)
    for question in answers.Question:
        passed = answers.ask(board, question, now, name).passed
        series.put("oomguard_model_answer", (name, question.value), passed)
    series.put("oomguard_model_credit_left_seconds", (name,), judgement.credit_left_seconds)
    series.put("oomguard_model_time_to_limit_seconds", (name,), number(view.time_to_limit_seconds))
    _findings(series, view)
    for detector, count in view.warnings.items():
        series.put("oomguard_warnings", (name, detector), count)
    for one in view.supervised:
        series.put("oomguard_container_restarts", (name, one.supervisor), one.restart_count)
    series.put_histogram("oomguard_probe_latency_seconds", (name,), view.probes)
    for outcome, count in view.probes.outcomes.items():
        series.put("oomguard_probes", (name, outcome), count)
    _operations(series, name, operations(view))


def _findings(series: _Series, view: ModelView) -> None:
    """One value a detector: its loudest finding, 0 where it looked and found nothing, none where it cannot tell."""
    loudest: dict[str, int] = {}
    blind = [one for one in view.answers if isinstance(one, CannotTell)]
    for one in view.answers:
        if not isinstance(one, CannotTell):
            severity = _SEVERITY[one.severity] if isinstance(one, Finding) else 0
            loudest[one.detector] = max(severity, loudest.get(one.detector, 0))
    for detector, severity in loudest.items():
        series.put("oomguard_finding_severity", (view.name, detector), severity)
    missing = len(view.judgement.degraded) + sum(len(one.missing) for one in blind)
    series.put("oomguard_model_missing_inputs", (view.name,), missing)


def _operations(series: _Series, name: str, works: tuple[Operation, ...]) -> None:
    """Operations of the same kind and label are summed; one of unknown size makes the sum unknown."""
    for kind in OperationKind:
        series.put("oomguard_operations", (name, kind.value), sum(work.kind is kind for work in works))
    for kind_name, label in {(work.kind.value, work.label) for work in works}:
        same = [work for work in works if (work.kind.value, work.label) == (kind_name, label)]
        labels = (name, kind_name, label)
        series.put("oomguard_operation_done_bytes", labels, _sum(work.bytes_done for work in same))
        series.put("oomguard_operation_expected_bytes", labels, _sum(work.bytes_expected for work in same))


def _sum(values: Iterable[int | None]) -> float | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _ends(series: _Series, board: Board) -> None:
    """Every cause from 0, so that a rate sees the first end; models of earlier lives of the sidecar as well."""
    counted = {**board.past_ends, **{name: view.ends for name, view in board.models.items()}}
    for name, ends in counted.items():
        for cause in EndClass:
            series.put("oomguard_restarts", (name, cause.value), ends.get(cause.value, 0))
    newest: dict[str, float] = {}
    every = [one for view in board.models.values() for one in view.incidents]
    for incident in (*board.past_incidents, *every):
        if incident.main:
            newest[incident.model] = max(incident.at.wall_s, newest.get(incident.model, -inf))
    for name, wall_s in newest.items():
        series.put("oomguard_last_end_timestamp_seconds", (name,), wall_s)


def _sample(series: _Series, name: str, sample: Sample) -> None:
    for sight in SightKind:
        series.put("oomguard_model_sight", (name, sight.value), sight is sample.sight)
    series.put("oomguard_model_hidden_ancestors", (name,), sample.hidden_ancestors)
    alive = [process for process in sample.processes if process.alive]
    series.put("oomguard_model_processes", (name,), len(alive))
    for process in alive:
        _process(series, name, process)
    for level in sample.levels:
        _level(series, (name, str(level.depth), level.name), level, room(sample, level))


def _process(series: _Series, name: str, process: ProcessSample) -> None:
    if not isinstance(process.status, Known):
        return
    status, pid = process.status.value, str(process.life.pid)
    kinds = {"anon": status.rss_anon_bytes, "file": status.rss_file_bytes, "shmem": status.rss_shmem_bytes}
    for kind, value in kinds.items():
        series.put("oomguard_process_resident_bytes", (name, pid, kind), value)


def _level(series: _Series, labels: tuple[str, ...], level: LevelSample, derived: Room) -> None:
    memory = level.memory
    series.put("oomguard_memory_current_bytes", labels, number(memory.current_bytes))
    series.put("oomguard_memory_peak_bytes", labels, number(memory.peak_bytes))
    series.put("oomguard_memory_limit_bytes", labels, number(memory.max_bytes))
    series.put("oomguard_memory_high_bytes", labels, number(memory.high_bytes))
    series.put("oomguard_memory_swap_bytes", labels, number(memory.swap_current_bytes))
    series.put("oomguard_memory_swap_limit_bytes", labels, number(memory.swap_max_bytes))
    series.put("oomguard_memory_unreclaimable_bytes", labels, number(derived.unreclaimable_bytes))
    series.put("oomguard_memory_headroom_bytes", labels, number(derived.headroom_bytes))
    series.put("oomguard_oom_kills", labels, number(memcg.oom_kills(memory)))
    _events(series, labels, memory)
    if isinstance(memory.stat, Known):
        _stat(series, labels, memory.version, memory.stat.value)
    pressures = {"memory": memory.memory_pressure, "io": memory.io_pressure, "cpu": memory.cpu_pressure}
    _pressure(series, "oomguard_pressure_stall_seconds", labels, pressures)


def _events(series: _Series, labels: tuple[str, ...], memory: MemoryLevel) -> None:
    if isinstance(memory.events, Known):
        for event, count in memory.events.value.items():
            series.put("oomguard_memory_events", (*labels, event), count)
    series.put("oomguard_memory_events", (*labels, "failcnt"), number(memory.failcnt))


def _stat(series: _Series, labels: tuple[str, ...], version: CgroupVersion, stat: Mapping[str, int]) -> None:
    """Levels below are counted as well: v2 always does so, v1 in its `total_` lines."""
    v1 = version is CgroupVersion.V1
    prefix = "total_" if v1 else ""
    for kind, (v2_name, v1_name) in _KINDS.items():
        series.put("oomguard_memory_kind_bytes", (*labels, kind), stat.get(f"{prefix}{v1_name if v1 else v2_name}"))
    for kind, name in _REFAULTS.items():
        series.put("oomguard_refaults", (*labels, kind), stat.get(prefix + name))
    for metric, name in _STAT_COUNTERS.items():
        series.put(metric, labels, stat.get(prefix + name))


def _pressure(series: _Series, name: str, labels: tuple[str, ...], resources: Mapping[str, Reading[Psi]]) -> None:
    for resource, reading in resources.items():
        if isinstance(reading, Known):
            series.put(name, (*labels, resource, "some"), reading.value.some.total_us / 1e6)
            if reading.value.full is not None:
                series.put(name, (*labels, resource, "full"), reading.value.full.total_us / 1e6)


def _node(series: _Series, node: NodeSample) -> None:
    if isinstance(node.meminfo, Known):
        for name, key in {
            "memory_available": "MemAvailable",
            "memory_total": "MemTotal",
            "swap_free": "SwapFree",
        }.items():
            series.put(f"oomguard_node_{name}_bytes", (), node.meminfo.value.get(key))
    if isinstance(node.vmstat, Known):
        series.put("oomguard_node_oom_kills", (), node.vmstat.value.get("oom_kill"))
    pressures = {"memory": node.memory_pressure, "io": node.io_pressure, "cpu": node.cpu_pressure}
    _pressure(series, "oomguard_node_pressure_stall_seconds", (), pressures)
