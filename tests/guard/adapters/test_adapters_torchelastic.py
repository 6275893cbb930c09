"""torchelastic's error file: written by the guard, read by torch itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.guard.hosts import Ended, environment, run_command, run_host

FAIL = "import guard; guard.install()\nraise MemoryError('rank ran out')"


def _run(tmp_path: Path, code: str, file: Path) -> Ended:
    return run_host(code, tmp_path, {"TORCHELASTIC_ERROR_FILE": str(file)})


def test_a_fatal_failure_is_written(tmp_path: Path) -> None:
    """Type, message, call stack and time in whole seconds, as text; nothing else is left in the folder."""
    folder = tmp_path / "elastic"
    folder.mkdir()
    file = folder / "error.json"
    ended = _run(tmp_path, FAIL, file)
    assert ended.returncode == 1
    message = json.loads(file.read_text())["message"]
    assert message["message"] == "MemoryError: rank ran out"
    info = message["extraInfo"]
    assert info["timestamp"].isdigit()
    assert "<string>:2 <module>" in info["py_callstack"]
    assert (info["written_by"], info["kind"]) == ("oomguard", "memory_error")
    assert list(folder.iterdir()) == [file]


def test_a_file_of_somebody_else_stays(tmp_path: Path) -> None:
    """What `@record` wrote is better: it has the whole traceback."""
    file = tmp_path / "error.json"
    file.write_text('{"message": {"message": "theirs", "extraInfo": {}}}')
    _run(tmp_path, FAIL, file)
    assert json.loads(file.read_text())["message"]["message"] == "theirs"
    file.write_text("damaged")
    _run(tmp_path, FAIL, file)
    assert file.read_text() == "damaged"


def test_a_later_failure_replaces_an_earlier_one_of_ours(tmp_path: Path) -> None:
    """A helper of the rank fails first; the rank's own failure is what counts in the end."""
    file = tmp_path / "error.json"
    _run(tmp_path, FAIL, file)
    _run(tmp_path, "import guard; guard.install()\nraise ValueError('the rank itself')", file)
    assert json.loads(file.read_text())["message"]["message"] == "ValueError: the rank itself"


def test_survived_failures_and_missing_folders(tmp_path: Path) -> None:
    """A failure that was survived writes nothing; a folder that is not there is nobody's problem."""
    file = tmp_path / "error.json"
    _run(tmp_path, "import guard; guard.install(); guard.report(MemoryError('survived'))", file)
    assert not file.exists()
    ended = run_host(FAIL, tmp_path, {"TORCHELASTIC_ERROR_FILE": "/nowhere/error.json", "OOMGUARD_FENCE": ""})
    assert ended.returncode == 1
    assert "MemoryError: rank ran out" in ended.own_err


@pytest.mark.torch
def test_torchrun_shows_the_cause(tmp_path: Path) -> None:
    """Torchrun's own report of the failed rank has the message, from a script that does not use `@record`."""
    script = tmp_path / "train.py"
    script.write_text(FAIL)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=1"]
    where = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    ended = run_command([*torchrun, *where, str(script)], environment(tmp_path))
    assert ended.returncode != 0
    assert "MemoryError: rank ran out" in ended.err.partition("Root Cause")[2], ended.err
