"""`oomguard export` as people run it: files, pipes, full disks, interruptions, wrong words."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sidecar.cli import main
from sidecar.export.columns import Shape, columns
from tests.sidecar.outputs.board_makers import sample
from tests.sidecar.record.keeping import Content, at, keep, minute

DOCS = Path(__file__).parents[3] / "docs" / "export.md"
EXPORT = (sys.executable, "-m", "sidecar.cli", "export", "--record")


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A small record."""
    folder = tmp_path / "shared"
    folder.mkdir()
    return keep(folder / "record.sqlite", minute())


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run([*EXPORT, *map(str, words)], capture_output=True, text=True, check=False, timeout=50)


def test_csv_goes_to_standard_output(record: Path) -> None:
    """A header and a row each, nothing beside it."""
    done = run(record)
    assert (done.returncode, done.stderr) == (0, "")
    table = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["kind"] for row in table].count("sample") == 21
    assert {row["level1_max_unlimited"] for row in table if row["kind"] == "sample"} == {"true"}


def test_a_file_is_made_by_its_ending_and_never_replaced_unasked(record: Path, tmp_path: Path) -> None:
    """The second time it is refused, with --force it is done; nobody else may read it."""
    made = tmp_path / "out.jsonl"
    assert run(record, "-o", made).returncode == 0
    assert made.read_text().startswith("{")
    assert made.stat().st_mode & 0o777 == 0o600
    refused = run(record, "-o", made, "--format", "csv")
    assert refused.returncode == 2
    assert refused.stderr == f"oomguard: export: {made} is there already; give another name, or --force to replace it\n"
    assert run(record, "-o", made, "--format", "csv", "--force").returncode == 0
    assert made.read_text().startswith("at,wall_s")
    assert [one.name for one in tmp_path.iterdir() if one.name != "shared"] == ["out.jsonl"]


def test_times_count_back_from_the_last_row(record: Path) -> None:
    """An old copy has the same last second as a record of now; absolute times are taken too."""
    times = [row["monotonic_s"] for row in csv.DictReader(run(record, "--since", "1s").stdout.splitlines())]
    assert times == [str(round(1001 + tenth / 10, 1)) for tenth in range(11)] + ["1002.0"]
    until = run(record, "--until", "2025-10-09T08:53:20.5Z", "--model", "llm").stdout.splitlines()
    assert [row["kind"] for row in csv.DictReader(until)] == ["sample"] * 6 + ["event"]
    nothing = run(record, "--until", "1970-01-01")
    assert (nothing.returncode, nothing.stderr) == (0, "oomguard: export: 0 rows\n")


def test_names_are_hidden_on_request(record: Path) -> None:
    """No name of the model, its files or cgroups is left, all figures are."""
    done = run(record, "--redact", "--format", "jsonl")
    assert done.returncode == 0
    assert '"model":"model-1"' in done.stdout
    assert '"level0_current_bytes":104857600' in done.stdout
    assert not [name for name in ("llm", "<b>", "boot-1\\b") if name in done.stdout]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "nobody"), "the record knows no model 'nobody'; it knows llm"),
        (("--since", "1s", "--until", "9s"), "--since 1s is after --until 9s"),
        (("--since", "soon"), "--since: 'soon' is no time; give 2026-11-30T13:05 (UTC), "),
        (("--format", "xls"), "invalid choice: 'xls'"),
        (("-o", "/nowhere/out.csv"), "/nowhere/out.csv: No such file or directory"),
        (("-o", "/dev/full"), "/dev/full: No space left on device"),
        (("-o", "/dev/full", "--format", "jsonl"), "/dev/full: No space left on device"),
        (("-o", "/dev/full", "--format", "parquet"), "/dev/full: No space left on device"),
        (("-o", "/"), "/ is there already"),
        (("-o", "/", "--force"), "/: "),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    record: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    """It says what is wrong; no traceback."""
    assert main(["export", "--record", str(record), *words]) == 2
    out, said = capsys.readouterr()
    assert message in said
    assert said.count("\n") == 1
    assert out == ""


def test_a_missing_record_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With where it is looked for."""
    assert main(["export", "--record", str(tmp_path)]) == 2
    assert f"there is no record at {tmp_path}/record.sqlite" in capsys.readouterr().err


def test_a_missing_package_is_told_with_the_line_that_installs_it(record: Path, tmp_path: Path) -> None:
    """Parquet is an extra."""
    (tmp_path / "pyarrow.py").write_text("raise ImportError('not here')\n")
    done = subprocess.run(
        [*EXPORT, str(record), "--format", "parquet"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2
    assert done.stderr == "oomguard: export: parquet needs pyarrow: pip install 'oomguard[parquet]'\n"


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_pipe_that_closes_early_is_no_error(record: Path, form: str) -> None:
    """As in `oomguard export | head -1`."""
    command = subprocess.Popen([*EXPORT, str(record), "--format", form], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.close()
    with command.stderr as said:
        assert said.read() == b""
    assert command.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_no_half_file(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, and the end that a supervisor sends, in the middle of writing."""
    samples = Content(samples=[sample(at(second)) for second in range(1500)])
    record = keep(tmp_path / "record.sqlite", samples)
    out = tmp_path / "out"
    out.mkdir()
    command = subprocess.Popen([*EXPORT, str(record), "-o", str(out / "big.csv")], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not list(out.iterdir()) and command.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    command.send_signal(number)
    _, said = command.communicate(timeout=30)
    assert (command.returncode, said) == (130, "oomguard: export: interrupted, nothing is left behind\n")
    assert list(out.iterdir()) == []


def test_memory_does_not_grow_with_the_record(tmp_path: Path) -> None:
    """Fifteen times the rows take no more than a few MiB more."""
    peaks = []
    for count in (200, 3000):
        record = keep(tmp_path / f"{count}.sqlite", Content(samples=[sample(at(second)) for second in range(count)]))
        measured = (
            "import re, sys; from sidecar.cli import main; status = main(sys.argv[1:]);"
            "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]); sys.exit(status)"
        )
        words = ("export", "--record", str(record), "-o", os.devnull)
        done = subprocess.run([sys.executable, "-c", measured, *words], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) >> 10)
    assert peaks[1] - peaks[0] <= 8, peaks


def test_the_docs_have_every_column() -> None:
    """Each column stands in docs/export.md; those of a level or card without their number."""
    documented = DOCS.read_text(encoding="utf-8")
    names = [column.name for column in columns(Shape(levels=1, gpus=1))]
    assert [name for name in names if f"`{name.replace('0_', 'N_', 1)}`" not in documented] == []
