"""`oomguard explain` as people and programs call it."""

from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sidecar.cli import main

_CORPUS = Path(__file__).parents[2] / "corpus" / "raw"


def run(*words: str, given: bytes = b"", encoding: str = "utf-8") -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process of its own."""
    command = [sys.executable, "-m", "guard.cli", "explain", *words]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    return subprocess.run(command, input=given, capture_output=True, check=False, timeout=30, env=environment)


def test_standard_input_is_the_default() -> None:
    """Without a file the text comes from standard input, and so it does for "-"."""
    text = (_CORPUS / "a49.txt").read_bytes()
    for words in ((), ("-",)):
        done = run(*words, given=text)
        assert done.returncode == 0
        assert b"global_oom (high confidence)" in done.stdout
        assert b"standard input" in done.stdout


def test_json_is_one_document() -> None:
    """The keys that programs rely on are there."""
    done = run("--json", str(_CORPUS / "a53.txt"), str(_CORPUS / "c22.txt"))
    answer = json.loads(done.stdout)
    (one,) = answer["incidents"]
    assert set(one) == {"class", "confidence", "at", "summary", "fields", "evidence", "missing", "next"}
    assert set(one["evidence"][0]) == {"for", "text", "file", "line"}
    assert one["fields"]["anon_rss_kb"] is None
    assert [Path(note["file"]).name for note in answer["inputs"]] == ["a53.txt", "c22.txt"]


def test_the_text_says_what_was_read_and_how(capsys: pytest.CaptureFixture[str]) -> None:
    """Each input is named with its format and the lines that were used."""
    assert main(["explain", str(_CORPUS / "a53.txt"), str(_CORPUS / "c22.txt")]) == 0
    said = capsys.readouterr().out
    assert "2 lines as journal or syslog; used lines 1-2" in said
    assert "3 lines as kubectl describe; used lines 1-3" in said


@pytest.mark.parametrize(("name", "status"), [("a49", 0), ("b35", 1), ("c02", 1), ("c37", 0), ("d15", 0)])
def test_the_exit_status(name: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    """0: classified or nothing ended; 1: an incident that cannot be decided."""
    assert main(["explain", str(_CORPUS / f"{name}.txt")]) == status
    assert ("Nothing ended" in capsys.readouterr().out) == (name in ("c37", "d15"))


@pytest.mark.parametrize("kind", ["missing", "directory", "damaged"])
def test_bad_input_is_one_line(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be read is said in one line with status 2, and nothing else is printed."""
    path = tmp_path / "input.gz"
    if kind == "directory":
        path.mkdir()
    elif kind == "damaged":
        path.write_bytes(b"\x1f\x8b" + b"x" * 100)
    assert main(["explain", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert str(path) in said.err


def test_the_bar_is_for_terminals(tmp_path: Path) -> None:
    """A large input shows a progress bar on a terminal, none elsewhere."""
    file = tmp_path / "large.log"
    file.write_bytes(b"a line of no interest, long as lines of logs are, so that there are few\n" * 150_000)
    main_end, other = pty.openpty()
    command = [sys.executable, "-m", "guard.cli", "explain", str(file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=other) as process:
        assert process.wait(120) == 0
    os.close(other)
    assert b"reading" in os.read(main_end, 65536)
    os.close(main_end)
    assert run(str(file)).stderr == b""


def test_letters_that_the_terminal_lacks() -> None:
    """A log in any script is shown on a terminal that knows only ASCII."""
    done = run(str(_CORPUS / "a02.txt"), encoding="ascii")
    assert done.returncode == 0
    assert b"global_oom" in done.stdout
    assert done.stderr == b""


def test_a_pipe_that_closes_early() -> None:
    """`oomguard explain | head` is no error."""
    command = [sys.executable, "-m", "guard.cli", "explain", str(_CORPUS / "a49.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(120) == 0


def test_an_output_that_takes_nothing() -> None:
    """An answer that cannot be written is bad, not undecided: one line and status 2."""
    command = [sys.executable, "-m", "guard.cli", "explain", str(_CORPUS / "a49.txt")]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=50)
    assert done.stderr == b"oomguard: explain: standard output: No space left on device\n"
    assert done.returncode == 2


def test_a_pipe_with_a_name(tmp_path: Path) -> None:
    """A named pipe is read like a file, as shells make one of `<(command)`; packed or not."""
    text = (_CORPUS / "a49.txt").read_bytes()
    for given in (text, gzip.compress(text)):
        pipe = tmp_path / f"pipe-{len(given)}"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=(given,))
        writer.start()
        done = run(str(pipe))
        writer.join()
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"global_oom (high confidence)" in done.stdout


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_input_without_end_costs_no_memory(device: str) -> None:
    """Of 256 MiB without a word in it nothing is kept: the command works within 160 MiB of address space for data."""
    limited = f"ulimit -d {160 << 10}; head -c 256M {device} | {sys.executable} -m guard.cli explain"
    done = subprocess.run(["sh", "-c", limited], capture_output=True, check=False, timeout=170)
    assert done.stderr == b""
    assert b"MemoryError" not in done.stdout
    assert done.returncode in (0, 1)
