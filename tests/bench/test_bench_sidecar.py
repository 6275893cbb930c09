"""The benchmark itself, played short on a real kernel: it ends, and its result has every figure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.kit.namespaces import Apart
from tests.lab.kit.places import CHECKOUT

BENCH = [sys.executable, "-m", "bench.sidecar", "--short", "--minutes", "0.1"]
PARTS = {
    "marks": {"beat", "progress", "busy_begin_and_end", "loading_begin_progress_end"},
    "install": {"install_after_torch", "import_guard", "interpreter_start_with_site_folder"},
    "load": {"tiny_file", "16_mib_file"},
    "leads": {
        *(f"lead_at_{rate}_mib_per_second" for rate in (20, 50, 200)),
        "warnings_on_page_cache_fill",
        "warnings_on_a_load_that_fits",
    },
    "deaths": {"seen_in_incidents_max", "verdict_after_seconds_max", "classified_right"},
    "crash_loop": {"rss_max", "rss_growth_in_second_half"},
    "answers": {"livez_p99", "model_health_page_p99"},
    "answers_without_cpu": {"livez_p99"},
    **{
        part: {
            "cpu_over_bare_loop",
            "cpu_over_its_own_reads_alone",
            "read_calls_over_its_own_reads",
            "read_kib_over_its_own_reads",
            "cpu_percent_of_a_core_per_model",
            "rss_at_end",
            "rss_growth_in_second_half",
        }
        for part in ("one_at_10_hz", "eight_at_10_hz")
    },
    "everyday": {"cpu_percent_of_a_core_per_model", "rss_at_end", "rss_growth_in_second_half", "runner_rss"},
}


@pytest.mark.lab
@pytest.mark.torch
@pytest.mark.slow
def test_a_short_run_measures_every_figure(tmp_path: Path) -> None:
    """Every figure is there and known, each goal says whether it is held, and the exit status follows from that."""
    out = tmp_path / "sidecar.json"
    with subprocess.Popen([*BENCH, "--out", str(out)], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as bench:
        output, _ = bench.communicate()
    assert out.exists(), output
    result = json.loads(out.read_text())
    assert {name: set(part["figures"]) for name, part in result["parts"].items()} == PARTS, output
    figures = list(_figures(result))
    goals = [figure["held"] for figure in figures if "goal" in figure]
    # In so short a run a peer's CPU time may stay below the 10 ms of the kernel's clock: then there is no ratio to it.
    assert [figure for figure in figures if figure["value"] is None and figure["unit"] != "times"] == []
    assert result["held"] is all(goals)
    assert bench.returncode == (0 if result["held"] else 1)
    assert result["machine"]["cores"] > 0
    last = output.splitlines()[-1]
    assert str(out) in last
    assert all(name in last for part in result["parts"].values() for name in _missed(part))


@pytest.mark.lab
def test_without_rights_it_says_so() -> None:
    """As a user who can make no cgroups it exits with 2 and says what is missing."""
    command = Apart(uid=65534, pid_namespace=False, cgroup_namespace=False).wrap(BENCH)
    refused = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2, refused.stderr
    assert "root" in refused.stdout
    assert "Traceback" not in refused.stderr


def _missed(part: dict[str, Any]) -> list[str]:
    return [name for name, figure in part["figures"].items() if figure.get("held") is False]


def _figures(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for part in result["parts"].values():
        yield from part["figures"].values()
