"""Every recorded tree and file says what its expected.json says."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from guard.kernel import psi
from guard.kernel.flat import parse_table
from guard.kernel.memcg import hierarchical_limit_bytes, parse_level, parse_oom_control, unreclaimable_bytes
from guard.kernel.values import CgroupVersion
from guard.model import Known
from tests.recorded.summary import summary

RECORDED: Final = Path(__file__).parents[2] / "recorded"
TREES: Final = sorted(path.parent for path in RECORDED.glob("**/origin.toml"))
FILES: Final[dict[str, dict[str, Any]]] = json.loads((RECORDED / "files/expected.json").read_text())


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_a_tree_says_what_is_expected(tree: Path) -> None:
    """Chain, levels, node and process of a recorded tree are read as expected, unknowns with their reasons."""
    assert summary(tree) == json.loads((tree / "expected.json").read_text())


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_a_tree_says_where_it_is_from(tree: Path) -> None:
    """origin.toml of each tree names kernel, distribution, cgroup mode, command and date."""
    origin = tomllib.loads((tree / "origin.toml").read_text())
    assert {"kernel", "distro", "cgroup_mode", "command", "date", "redactions", "errors"} <= set(origin)


def test_every_file_has_an_expectation() -> None:
    """No recorded file lies there unread."""
    found = {str(path.relative_to(RECORDED / "files")) for path in (RECORDED / "files").glob("*/*")}
    assert found == set(FILES)


@pytest.mark.parametrize("name", [name for name in FILES if "stat" in name])
def test_a_recorded_stat(name: str) -> None:
    """A memory.stat is read whole, and its unreclaimable memory is the sum made by hand."""
    data, expected = (RECORDED / "files" / name).read_bytes(), FILES[name]
    version = CgroupVersion.V1 if expected["parser"] == "stat_v1" else CgroupVersion.V2
    level = parse_level(version, {"memory.stat": Known(data)})
    assert isinstance(level.stat, Known)
    assert len(level.stat.value) == expected["lines"]
    assert level.stat.value.get("workingset_refault_file") == expected["workingset_refault_file"]
    assert unreclaimable_bytes(level) == Known(expected["unreclaimable_bytes"])
    if version is CgroupVersion.V1:
        assert hierarchical_limit_bytes(level) == Known(expected["hierarchical_limit_bytes"])


@pytest.mark.parametrize("name", [name for name in FILES if "pressure" in name])
def test_a_recorded_pressure(name: str) -> None:
    """Both stall times of a pressure file are read."""
    found = psi.parse((RECORDED / "files" / name).read_bytes(), name)
    assert isinstance(found, Known)
    assert found.value.full is not None
    expected = FILES[name]
    assert (found.value.some.total_us, found.value.full.total_us) == (expected["some_us"], expected["full_us"])


@pytest.mark.parametrize("name", [name for name in FILES if "events" in name])
def test_a_recorded_events_file(name: str) -> None:
    """All counters of a memory.events are read."""
    expected = {key: value for key, value in FILES[name].items() if key != "parser"}
    assert parse_table((RECORDED / "files" / name).read_bytes(), name) == Known(expected)


@pytest.mark.parametrize("name", [name for name in FILES if "oom_control" in name])
def test_a_recorded_oom_control(name: str) -> None:
    """oom_control is read, on a kernel without the count of kills too."""
    found = parse_oom_control((RECORDED / "files" / name).read_bytes(), name)
    assert isinstance(found, Known)
    expected = FILES[name]
    assert found.value.oom_kill == expected["oom_kill"]
    assert (found.value.oom_kill_disable, found.value.under_oom) == (
        expected["oom_kill_disable"],
        expected["under_oom"],
    )
