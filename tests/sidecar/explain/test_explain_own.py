"""What oomguard itself wrote is read as well: a guarded server's standard error, the sidecar's log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.sidecar.explain.explaining import classes, explained

_SIDECAR: Final = {"level": "warning", "event": "model_ended", "model": "llm", "pid": 29980, "incident": "abb42b56"}
_FIRST: Final = json.dumps(
    {
        "ts": "2026-11-30T17:39:11.120Z",
        **_SIDECAR,
        "text": "The model was ended by SIGKILL from outside, not by the kernel for want of memory",
        "class": "external_kill",
        "confidence": "low",
    }
)
_REFINED: Final = json.dumps(
    {
        "ts": "2026-11-30T17:39:12.950Z",
        **_SIDECAR,
        "event": "verdict_refined",
        "text": "the kernel log told: The kernel killed the model at the limit of /llm",
        "class": "cgroup_oom",
        "confidence": "high",
        "cgroup": "/llm",
    }
)
_KERNEL: Final = (
    "2026-11-30T17:39:11+00:00 node kernel: Memory cgroup out of memory: Killed process 29980 (python3) "
    "total-vm:900kB, anon-rss:800kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0"
)


def _standard_error(failing: str, directory: Path) -> str:
    """What a guarded server writes that fails so."""
    environment = {**os.environ, "OOMGUARD_DIR": str(directory)}
    program = f"import guard; guard.install()\n{failing}"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 1, ran.stderr
    return ran.stderr


def test_a_failure_of_a_guarded_server_is_one_incident(tmp_path: Path) -> None:
    """The guard's line and the interpreter's traceback tell of one failure, and the guard's advice is handed on."""
    told = _standard_error("bytearray(1 << 48)", tmp_path)
    [incident] = explained(log=told)
    assert (incident.end_class.value, incident.fields["kind"]) == ("host_allocation_failure", "memory_error")
    assert incident.at is not None
    assert {one.line for one in incident.evidence} == {1, told.count("\n")}
    assert any("ulimit -v" in step for step in incident.next_steps)


def test_a_failure_that_is_not_about_memory_is_the_applications_own(tmp_path: Path) -> None:
    """Any other exception that nobody caught."""
    assert classes(log=_standard_error("raise ValueError('no such model')", tmp_path)) == ["application_exit"]


@pytest.mark.parametrize("before", ["", "2026-11-30T17:39:11.2Z stderr F ", "llm-1  | ", "[pod/llm-0/oomguard] "])
def test_the_last_word_of_the_sidecar_counts(before: str) -> None:
    """A verdict that was refined is one incident, whatever a log store put before its lines."""
    [incident] = explained(log=f"{before}{_FIRST}\n{before}{_REFINED}")
    assert (incident.end_class.value, incident.confidence.value) == ("cgroup_oom", "high")
    assert (incident.fields["model"], incident.fields["cgroup"]) == ("llm", "/llm")


def test_the_kernels_word_and_the_sidecars_are_one_incident() -> None:
    """Two witnesses of one kill."""
    assert classes(kernel=_KERNEL, sidecar=f"{_FIRST}\n{_REFINED}") == ["cgroup_oom"]


@pytest.mark.parametrize(
    "line",
    [
        '{"event":"model_ended","model":"llm"}',
        '{"event":"oomguard.failure"',
        '{"event":"model_ended","incident":"a","class":["x"],"confidence":7,"text":null}',
        '{"event":"oomguard.failure","kind":[],"at_wall_s":1e400,"message":{},"do":7}',
        '{"event":"oomguard.failure","at_wall_s":"NaN"}' + "}" * 9,
    ],
)
def test_a_line_that_only_looks_like_ours_raises_nothing(line: str) -> None:
    """Cut, or of another release: what cannot be read is unknown."""
    for incident in explained(log=line):
        assert incident.end_class.value in {"unknown", "application_exit"}
