"""Export and bundle of what a real sidecar has seen of real processes, while it runs."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sidecar.cli import main
from sidecar.record.reading import RecordError, RecordReader, open_record
from tests.lab.kit.wait import until
from tests.sidecar.daemons import Daemon, let_go, model

EXIT_3 = "sys.stdin.readline(); os._exit(3)"


def test_two_lives_are_on_one_clock(tmp_path: Path) -> None:
    """Usage and limits, exit codes and a count that rises with each end; a living process gives its kernel files."""
    shared = tmp_path / "shared"
    with Daemon(shared, tmp_path / "log"):
        for life in (1, 2):
            with model(shared, "server", EXIT_3) as process:
                until(partial(holds, shared, seen, life), 30, "a sample of the model to be in the record")
                assert let_go(process) == 3
            until(partial(holds, shared, RecordReader.count_incidents, life), 30, "the end to be in the record")
        with model(shared, "server", EXIT_3) as process:
            until(partial(holds, shared, begun, 3), 30, "the third life to be in the record")
            rows = exported(shared, tmp_path / "out.jsonl")
            assert main(["bundle", "--record", str(shared), "-o", str(tmp_path / "bundle.tar.gz")]) == 0
            with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
                file = archive.extractfile("oomguard-bundle/tree/proc/self/status")
                assert file is not None
                assert f"\nPid:\t{process.pid}\n" in file.read().decode()
    of_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in ("sample", "event", "incident")}
    assert [(row["exit_code"], row["ends"], row["incident_class"]) for row in of_kind["incident"]] == [
        (3, 1, "application_exit"),
        (3, 2, "application_exit"),
    ]
    samples = [row for row in of_kind["sample"] if row["main_alive"]]
    assert {0, 1} <= {row["ends"] for row in samples}
    assert all(row["level0_current_bytes"] > 0 and row["main_rss_anon_bytes"] > 0 for row in samples)
    assert all(row["level0_max_unlimited"] is not None and row["node_mem_available_bytes"] > 0 for row in samples)
    assert {"model_started", "model_ended"} <= {row["event_kind"] for row in of_kind["event"]}
    clock = [row["monotonic_s"] for row in rows]
    assert clock == sorted(clock)


def exported(shared: Path, out: Path) -> list[dict[str, object]]:
    """The table of the model."""
    assert main(["export", "--record", str(shared), "--model", "server", "-o", str(out)]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def holds(shared: Path, told: Callable[[RecordReader], int], count: int) -> bool:
    """Whether the record has come so far; it may not have begun."""
    try:
        with open_record(shared) as reader:
            return told(reader) >= count
    except RecordError:
        return False


def seen(reader: RecordReader) -> int:
    """Lives of which a sample with a living process is in the record."""
    return len({one["pid"] for row in reader.samples("server") for one in row.row["processes"] if one["alive"]})


def begun(reader: RecordReader) -> int:
    """Lives whose beginning is in the record."""
    return [event.kind for event in reader.events("server")].count("model_started")


@pytest.fixture(autouse=True)
def shared_directory(tmp_path: Path) -> None:
    """Make it, and let no variable of ours reach the commands."""
    (tmp_path / "shared").mkdir()
