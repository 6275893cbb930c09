"""Metrics as Prometheus reads them."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from board_makers import DENIED, NOW, board, incident, level, node, operation, process, sample, v1_level, view
from prometheus_client.parser import text_string_to_metric_families

from guard.model import Known
from sidecar.board import Board, ProbeTally
from sidecar.outputs import metrics
from sidecar.outputs.metrics_table import TABLE, markdown, shown
from sidecar.sample import Instant, ProbeOutcome, ProbeResult, Sample
from sidecar.supervisors.values import Container
from tests.sidecar.collect.gpu_cards import MIB, card, lost_card
from tests.sidecar.collect.gpu_cards import sample as gpus

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


def scrape(seen: Board, now: Instant = NOW) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Series by name and labels; a series that comes twice fails."""
    series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(metrics.render(seen, now).decode()):
        for one in family.samples:
            key = (one.name, frozenset(one.labels.items()))
            assert key not in series, f"{key} twice"
            series[key] = one.value
    return series


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """How a series is named here."""
    return name, frozenset(labels.items())


OWN = {"model": "llm", "depth": "0", "level": "/pod/model"}
POD = {"model": "llm", "depth": "1", "level": "/pod"}


def changed(name: str, **fields: object) -> Sample:
    """A sample of a model with other fields."""
    made = sample(model=name)
    return Sample(**{slot: getattr(made, slot) for slot in made.__slots__} | fields)  # type: ignore[arg-type] # by name


def test_levels_are_series_in_base_units() -> None:
    """Bytes as bytes, PSI microseconds as seconds, counters with _total."""
    series = scrape(board(view()))
    assert series[key("oomguard_memory_current_bytes", **OWN)] == 104857600
    assert series[key("oomguard_memory_limit_bytes", **OWN)] == 268435456
    assert series[key("oomguard_memory_kind_bytes", **OWN, kind="anon")] == 52428800
    assert series[key("oomguard_oom_kills_total", **OWN)] == 1
    assert series[key("oomguard_memory_events_total", **OWN, event="max")] == 12
    assert series[key("oomguard_major_faults_total", **OWN)] == 42
    assert series[key("oomguard_refaults_total", **OWN, kind="file")] == 77
    assert series[key("oomguard_pressure_stall_seconds_total", **OWN, resource="memory", kind="some")] == 1.5
    assert series[key("oomguard_pressure_stall_seconds_total", **OWN, resource="io", kind="full")] == 0.5
    assert 0 < series[key("oomguard_memory_headroom_bytes", **OWN)] < 268435456


def test_unlimited_is_infinite_and_unknown_is_absent() -> None:
    """A graph shows a gap for what is not known, never a zero."""
    series = scrape(board(view()))
    assert series[key("oomguard_memory_limit_bytes", **POD)] == math.inf
    assert series[key("oomguard_memory_high_bytes", **OWN)] == math.inf
    names = {name for name, _ in series}
    assert "oomguard_node_oom_kills_total" not in names  # vmstat denied
    assert "oomguard_sidecar_resident_bytes" not in names
    assert "oomguard_model_time_to_limit_seconds" not in names
    assert key("oomguard_pressure_stall_seconds_total", **OWN, resource="cpu", kind="some") not in series
    assert key("oomguard_process_resident_bytes", model="llm", pid="7", kind="shmem") not in series
    assert series[key("oomguard_process_resident_bytes", model="llm", pid="7", kind="anon")] == 50 << 20


def test_a_v1_level_counts_those_below_it() -> None:
    """On v1 the plain lines are the level's own, the `total_` lines mean what v2's lines mean."""
    series = scrape(board(view(sample=changed("llm", levels=(v1_level(),)))))
    assert series[key("oomguard_memory_kind_bytes", **OWN, kind="anon")] == 52428800
    assert series[key("oomguard_memory_kind_bytes", **OWN, kind="shmem")] == 1048576
    assert series[key("oomguard_major_faults_total", **OWN)] == 42
    assert series[key("oomguard_oom_kills_total", **OWN)] == 2
    assert series[key("oomguard_memory_events_total", **OWN, event="failcnt")] == 5
    assert series[key("oomguard_memory_limit_bytes", **OWN)] == math.inf
    assert key("oomguard_memory_kind_bytes", **OWN, kind="kernel") not in series


def test_state_answers_and_findings() -> None:
    """One-hot state, the answers as the routes give them, one severity a detector that can tell."""
    series = scrape(board(view(warnings={"time_to_limit": 3})))
    states = {
        dict(labels)["state"]: value for (name, labels), value in series.items() if name == "oomguard_model_state"
    }
    assert [state for state, value in states.items() if value] == ["ok"]
    assert len(states) == 10
    assert series[key("oomguard_model_answer", model="llm", question="livez")] == 1
    assert series[key("oomguard_finding_severity", model="llm", detector="time_to_limit")] == 2
    assert series[key("oomguard_finding_severity", model="llm", detector="reclaim")] == 0
    assert key("oomguard_finding_severity", model="llm", detector="node") not in series
    assert series[key("oomguard_model_missing_inputs", model="llm")] == 1
    assert series[key("oomguard_warnings_total", model="llm", detector="time_to_limit")] == 3


def test_every_cause_counts_from_zero_and_the_past_is_not_forgotten() -> None:
    """A first end is a step from 0 to 1, and models of earlier lives of the sidecar keep their counts."""
    seen = board(view())
    seen.past_ends = {"llm": {"cgroup_oom": 1}, "old": {"crash_signal": 4}}
    seen.past_incidents = (incident("x", "old"), incident("child", "llm", main=False))
    series = scrape(seen)
    assert series[key("oomguard_restarts_total", model="llm", cause="cgroup_oom")] == 2
    assert series[key("oomguard_restarts_total", model="llm", cause="eviction")] == 0
    assert series[key("oomguard_restarts_total", model="old", cause="crash_signal")] == 4
    assert series[key("oomguard_last_end_timestamp_seconds", model="old")] == NOW.wall_s
    assert key("oomguard_last_end_timestamp_seconds", model="llm") not in series


def test_probe_latencies_are_a_cumulative_histogram() -> None:
    """A latency on a bound counts in that bucket, as Prometheus' `le` says."""
    tally = ProbeTally()
    for latency, outcome in ((0.005, ProbeOutcome.OK), (0.3, ProbeOutcome.OK), (99.0, ProbeOutcome.TIMEOUT)):
        tally = tally.add(ProbeResult(started=NOW, latency_seconds=latency, outcome=outcome))
    series = scrape(board(view(probes=tally)))
    bucket = {
        dict(labels)["le"]: value
        for (name, labels), value in series.items()
        if name == "oomguard_probe_latency_seconds_bucket"
    }
    assert (bucket["0.005"], bucket["0.25"], bucket["0.5"], bucket["30.0"], bucket["+Inf"]) == (1, 1, 2, 2, 3)
    assert series[key("oomguard_probe_latency_seconds_count", model="llm")] == 3
    assert series[key("oomguard_probe_latency_seconds_sum", model="llm")] == pytest.approx(99.305)
    assert series[key("oomguard_probes_total", model="llm", outcome="timeout")] == 1


def test_operations_of_one_label_are_summed_and_an_unknown_part_hides_the_sum() -> None:
    """Two threads loading are one series; a sum with an unknown part is not a number."""
    two = changed("llm", processes=(process(operation(1), operation(2)),))
    label = "safetensors.torch.load_file"
    series = scrape(board(view(sample=two)))
    assert series[key("oomguard_operations", model="llm", kind="load")] == 2
    assert series[key("oomguard_operation_done_bytes", model="llm", kind="load", label=label)] == 3
    unsure = changed("llm", processes=(process(operation(1), operation(None)),))
    series = scrape(board(view(sample=unsure)))
    assert key("oomguard_operation_done_bytes", model="llm", kind="load", label=label) not in series
    assert series[key("oomguard_operation_expected_bytes", model="llm", kind="load", label=label)] == 200 << 20


def test_the_same_level_or_pid_twice_does_not_break_the_scrape() -> None:
    """Prometheus refuses a page with a series twice; the first value stays."""
    twice = changed("llm", levels=(level(), level(memory_current=b"1\n")), processes=(process(), process()))
    assert scrape(board(view(sample=twice)))[key("oomguard_memory_current_bytes", **OWN)] == 104857600


def test_hostile_label_values_are_escaped() -> None:
    """A model may be called anything."""
    name = 'a"b\\c\nd\udcff'
    series = scrape(board(view(name)))
    assert any(dict(labels).get("model") == 'a"b\\c\nd?' for _, labels in series)


def test_the_sidecar_reports_itself() -> None:
    """The age of the tick is measured when asked."""
    seen = board()
    seen.own = type(seen.own)(
        started=NOW,
        last_tick=NOW,
        tick_seconds=0.1,
        ticks=7,
        degraded=("record",),
        rss_bytes=Known(40 << 20),
        cpu_seconds=Known(1.5),
    )
    series = scrape(seen, Instant(NOW.monotonic_s + 2.5, NOW.wall_s))
    assert series[key("oomguard_sidecar_tick_age_seconds")] == 2.5
    assert series[key("oomguard_sidecar_resident_bytes")] == 40 << 20
    assert series[key("oomguard_sidecar_cpu_seconds_total")] == 1.5
    assert series[key("oomguard_sidecar_degraded")] == 1


def test_every_metric_of_the_table_can_appear_and_no_other() -> None:
    """The table is complete: a full board shows each of its rows."""
    full_node = type(node())(
        **{slot: getattr(node(), slot) for slot in node().__slots__} | {"vmstat": Known({"oom_kill": 3})}
    )
    tally = ProbeTally().add(ProbeResult(started=NOW, latency_seconds=0.1, outcome=ProbeOutcome.OK))
    seen = board(
        view(
            sample=replace(changed("llm", node=full_node), gpu=gpus(card(xids={79: 2}), lost_card(1))),
            time_to_limit_seconds=Known(12.0),
            warnings={"time_to_limit": 1},
            probes=tally,
            incidents=(incident(),),
            supervised=(Container(supervisor="docker", name="llm", restart_count=2),),
        )
    )
    seen.own = type(seen.own)(
        started=NOW, last_tick=NOW, tick_seconds=0.1, ticks=7, degraded=(), rss_bytes=Known(1), cpu_seconds=Known(1.0)
    )
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name, _ in scrape(seen)}
    assert {shown(row) for row in TABLE} == names


def test_cards_and_their_slices_are_series() -> None:
    """A card has an empty `slice`, a slice of it its number; of a lost card that it is lost, and nothing else."""
    series = scrape(board(view(sample=replace(sample(), gpu=gpus(card(xids={79: 2}), lost_card(1))))))
    first = {"gpu": "0", "uuid": "GPU-0"}
    used = "oomguard_gpu_memory_used_bytes"
    assert series[used, frozenset({**first, "slice": ""}.items())] == 1024 * MIB
    assert series[used, frozenset({**first, "slice": "2"}.items())] == MIB
    assert series["oomguard_gpu_xids_total", frozenset({**first, "code": "79"}.items())] == 2
    lost = [name for name, labels in series if ("gpu", "1") in labels]
    assert lost == ["oomguard_gpu_lost"]


def test_nothing_seen_is_still_a_page() -> None:
    """An empty board gives the sidecar's own series."""
    assert {name for name, _ in scrape(board())} <= {shown(row) for row in TABLE}


def test_names_follow_prometheus_conventions() -> None:
    """Prefix, base units, no `_total` on gauges, every row explained."""
    for row in TABLE:
        assert re.fullmatch(r"oomguard_[a-z_]+", row.name), row.name
        assert not row.name.endswith(("_total", "_us", "_ms", "_kb", "_percent")), row.name
        assert row.text.endswith("."), row.name


def test_the_documented_table_is_the_code() -> None:
    """docs/metrics.md holds the table as the code has it; print(markdown()) gives the new one."""
    assert markdown() in DOCS.read_text()


def test_no_global_registry_is_touched() -> None:
    """Rendering registers nothing that a host's own client would export."""
    code = (
        "import prometheus_client as p; before = set(p.REGISTRY._names_to_collectors);"
        "import sidecar.outputs.metrics; assert before == set(p.REGISTRY._names_to_collectors)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_unknown_stays_unknown() -> None:
    """`number` has no default."""
    assert metrics.number(DENIED) is None
