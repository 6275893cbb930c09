"""The Grafana dashboard and the alert rules against the metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.outputs.metrics_table import TABLE, shown

INTEGRATIONS = Path(__file__).parents[3] / "integrations"
DASHBOARD = INTEGRATIONS / "grafana" / "oomguard.json"
ALERTS = INTEGRATIONS / "prometheus" / "alerts.yml"
_TARGET_LABELS = {"job", "instance", "le", "namespace", "pod", "node"}


def _series(kind: str, name: str) -> list[str]:
    return [f"{name}_{tail}" for tail in ("bucket", "sum", "count")] if kind == "histogram" else [name]


LABELS = {name: set(row.labels) for row in TABLE for name in _series(row.kind, shown(row))}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return dict(json.loads(DASHBOARD.read_text()))


def panel_queries() -> list[str]:
    """Every query of the dashboard: panels, variables, annotations."""
    board = dashboard()
    targets = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    variables = [one["definition"] for one in board["templating"]["list"] if one["type"] == "query"]
    return targets + variables + [one["expr"] for one in board["annotations"]["list"]]


def alert_queries() -> list[str]:
    """Every expression of the alert rules."""
    return [rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("query", panel_queries() + alert_queries())
def test_queries_use_metrics_and_labels_that_exist(query: str) -> None:
    """A metric that is renamed breaks here, not on somebody's wall."""
    used = re.findall(r"\boomguard_[a-z_]+", query)
    assert used or query.startswith("up{")
    assert set(used) <= set(LABELS)
    known = set().union(_TARGET_LABELS, *(LABELS[name] for name in used))
    matched = re.findall(r"(\w+)=~?[\"']|(\w+)!=\"", query)
    grouped = [label for inner in re.findall(r"(?:by|without) \(([^)]*)\)", query) for label in inner.split(", ")]
    assert {first or second for first, second in matched} | set(grouped) <= known


def test_legends_use_labels_that_their_query_keeps() -> None:
    """A legend with a label that is not there shows an empty place."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            grouped = re.search(r"by \(([^)]*)\)", target["expr"])
            names = re.findall(r"\boomguard_[a-z_]+", target["expr"])
            kept = set(grouped[1].split(", ")) if grouped else set().union(_TARGET_LABELS, *(LABELS[n] for n in names))
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= kept, target["expr"]


def test_panels_do_not_overlap_and_explain_themselves() -> None:
    """Every panel has a place of its own, an id of its own and a description."""
    board = dashboard()
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not own & cells, panel["title"]
        assert panel["description"], panel["title"]
        cells |= own
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_metric_of_the_model_is_somewhere_on_the_dashboard_or_in_an_alert() -> None:
    """A metric that nothing shows is either missing here or not needed."""
    used = set(re.findall(r"\boomguard_[a-z_]+", " ".join(panel_queries() + alert_queries())))
    unused = {name for name in LABELS if name not in used and not name.endswith(("_sum", "_count"))}
    assert unused == {
        "oomguard_gpu_memory_reserved_bytes",
        "oomguard_gpu_temperature_celsius",
        "oomguard_last_end_timestamp_seconds",
        "oomguard_memory_peak_bytes",
        "oomguard_memory_swap_bytes",
        "oomguard_memory_swap_limit_bytes",
        "oomguard_model_hidden_ancestors",
        "oomguard_model_processes",
        "oomguard_node_oom_kills_total",
        "oomguard_node_pressure_stall_seconds_total",
        "oomguard_operations",
        "oomguard_sidecar_start_time_seconds",
        "oomguard_sidecar_ticks_total",
    }
