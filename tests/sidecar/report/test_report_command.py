"""`oomguard report` as people call it, on a record of the demo."""

from __future__ import annotations

import os
import pty
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest

from sidecar.cli import main
from tests.sidecar.report.pages import Page

Refused: TypeAlias = Callable[..., str]

RECORD = Path(__file__).parents[2] / "recorded" / "records" / "k6.18-hybrid-demo.sqlite"
KILL, GROWTH, HANG, RECLAIM = "a8b27d7aac6a4cef", "e9b1393513bae48c", "de8eef6bd82981b4", "7eabf01be87b6d67"


def run(*words: str, folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, as a process of its own."""
    command = [sys.executable, "-m", "guard.cli", "report", *words]
    place = {"PYTHONPATH": str(Path(__file__).parents[3]), "OOMGUARD_DIR": str(RECORD)}
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", **place, **changes}
    return subprocess.run(
        command, cwd=folder, capture_output=True, encoding="utf-8", check=False, timeout=50, env=environment
    )


@pytest.fixture(name="refused")
def _refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run what must be refused, in this process; give the one line that says why."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OOMGUARD_DIR", str(RECORD))

    def refused(*words: str) -> str:
        assert main(["report", *words]) == 2
        said = capsys.readouterr()
        (line,) = said.err.splitlines()
        assert line.startswith("oomguard: ")
        assert said.out == ""
        return line

    return refused


def test_the_newest_end_as_page_and_text(tmp_path: Path) -> None:
    """Without words: the newest end, a page named after it, the same as text."""
    done = run(folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.iterdir()
    assert file.name == f"oomguard-report-{KILL}.html"
    assert done.stdout.splitlines()[1] == "A memory limit killed it"
    assert done.stdout.splitlines()[-1] == f"The page: {file.name}"
    read = Page.of(file.read_text())
    for said in ("/demo/kill", "blocks.3.query_key_value.weight", "39.4 %", "Progress of model.safetensors"):
        assert said in read.text
        assert said in done.stdout
    assert file.stat().st_size < 300_000


def test_an_end_by_how_its_id_begins(tmp_path: Path) -> None:
    """Samples on disk serve where the full-rate minute is gone; without either the verdict is left."""
    hang = run(HANG[:6], "--text", folder=tmp_path)
    assert "the model was hung" in hang.stdout
    assert "/livez failed" in hang.stdout
    reclaim = run(RECLAIM, "--text", folder=tmp_path)
    assert "The record holds no sample around this end" in reclaim.stdout
    assert "limit_changed" in reclaim.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_text_and_the_page_go_where_they_are_sent(tmp_path: Path) -> None:
    """-o - is the page on standard output alone; -o FILE is that file; --force replaces it."""
    page = run("-o", "-", folder=tmp_path)
    assert page.stdout.startswith("<!doctype html>")
    assert page.stdout.endswith("</html>\n")
    assert run("-o", "a.html", folder=tmp_path).returncode == 0
    first = (tmp_path / "a.html").read_text()
    assert first == page.stdout
    assert run(GROWTH, "-o", "a.html", "--force", folder=tmp_path).returncode == 0
    assert (tmp_path / "a.html").read_text() != first
    assert [one.name for one in tmp_path.iterdir()] == ["a.html"]


def test_nothing_is_replaced_unasked(tmp_path: Path, refused: Refused) -> None:
    """A file that is there stays as it is."""
    (tmp_path / "a.html").write_text("mine")
    assert "is there already" in refused("-o", "a.html")
    assert (tmp_path / "a.html").read_text() == "mine"


def test_the_list(tmp_path: Path) -> None:
    """Every end is a line, newest first."""
    done = run("--list", folder=tmp_path)
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["incident", "ended", "model", "why"]
    assert [line.split()[0] for line in lines] == [KILL, GROWTH, HANG, RECLAIM]
    assert "cgroup_oom, high: The kernel killed the model" in lines[0]


def test_the_timeline_is_as_long_as_asked_for(tmp_path: Path) -> None:
    """--last shortens it; it never begins before the life that ended."""
    assert "Timeline, from -6 s" in run("--text", "--last", "6", folder=tmp_path).stdout
    assert "Timeline, from -15.9 s" in run("--text", "--last", "90000", folder=tmp_path).stdout


def test_an_end_found_in_a_later_boot_lies_on_its_own_clock(tmp_path: Path) -> None:
    """What no sidecar saw is placed by the wall clock: the finder's monotonic clock is of another boot."""
    copy = tmp_path / "record.sqlite"
    shutil.copy(RECORD, copy)
    with closing(sqlite3.connect(copy)) as record, record:
        record.execute(
            "UPDATE incidents SET last_sample=NULL, document=json_set(document, '$.monotonic_s', 99.5) WHERE id=?",
            (HANG,),
        )
    said = run(HANG, "--text", folder=tmp_path, OOMGUARD_DIR=str(tmp_path)).stdout
    assert "Timeline, from -19.2 s" in said
    assert "the model was hung" in said
    assert re.search(r"(end|\+0\.\d+ s) +model_ended +The model was ended by SIGKILL", said)


def test_redacted(tmp_path: Path) -> None:
    """Names, paths and commands are stand-ins, in page and text; figures and words of the kernel stay."""
    done = run("--redact", folder=tmp_path)
    (file,) = tmp_path.iterdir()
    for said in (done.stdout, file.read_text()):
        assert not [
            name for name in ("safetensors --load", "/models", "query_key_value", "127.0.0.1:4") if name in said
        ]
        for kept in ("cgroup_oom", "memory.failcnt", "164.2 MiB of 416.4 MiB"):
            assert kept in said.replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ").replace("  ", " ")


def test_what_is_not_there(tmp_path: Path, refused: Refused) -> None:
    """A wrong incident, model, place or use is one line that says what there is instead."""
    (tmp_path / "empty").mkdir()
    cases = {
        ("ffff",): KILL,
        ("--model", "other"): "demo",
        ("--record", "nowhere"): "there is no record at nowhere",
        ("--record", "empty"): "there is no record at empty",
        ("--last", "soon"): "'soon' is not a number of seconds",
        (KILL, "--model", "demo"): "leave out --list and --model",
        ("-o", "no/such/folder.html"): "No such file or directory",
        ("--lst",): "unrecognized arguments",
    }
    for words, said in cases.items():
        assert said in refused(*words)


def test_a_record_that_cannot_be_read(tmp_path: Path, refused: Refused) -> None:
    """Damage and foreign files are told apart, and each line says what to do."""
    damaged = tmp_path / "damaged.sqlite"
    data = bytearray(RECORD.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    damaged.write_bytes(data)
    assert "damaged" in refused("--record", str(damaged))
    foreign = tmp_path / "foreign"
    foreign.write_text("hello, this is no database of any kind, but long enough to be read as one" * 20)
    assert "no record" in refused("--record", str(foreign))


def test_a_record_without_ends(tmp_path: Path, refused: Refused) -> None:
    """Nothing ended yet, of this model or at all: it is said so."""
    copy = tmp_path / "record.sqlite"
    shutil.copy(RECORD, copy)
    with closing(sqlite3.connect(copy)) as record, record:
        record.execute("UPDATE events SET model='quiet' WHERE id=1")
    assert "holds no end of model quiet yet" in refused("--record", str(copy), "--model", "quiet")
    with closing(sqlite3.connect(copy)) as record, record:
        record.execute("DELETE FROM incidents")
    assert "holds no end yet" in refused("--record", str(copy))


def test_a_record_whose_ends_cannot_be_read(tmp_path: Path, refused: Refused) -> None:
    """It is not said that nothing ended, but how many ends are there and cannot be read."""
    copy = tmp_path / "record.sqlite"
    shutil.copy(RECORD, copy)
    with closing(sqlite3.connect(copy)) as record, record:
        (count,) = record.execute("SELECT count(*) FROM incidents").fetchone()
        record.execute("UPDATE incidents SET document='null'")
    for asked in ((), ("--list",), ("--text",)):
        assert f"is in the shape of this release ({count} left out)" in refused("--record", str(copy), *asked)


def test_an_end_in_another_shape(tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
    """An incident that is not one is listed as such, and cannot be shown."""
    copy = tmp_path / "record.sqlite"
    shutil.copy(RECORD, copy)
    with closing(sqlite3.connect(copy)) as record, record:
        record.execute("UPDATE incidents SET document=json_set(document, '$.class', 'fate') WHERE id=?", (KILL,))
    assert "is not in the shape of this release" in refused("--record", str(copy), KILL)
    assert main(["report", "--record", str(copy), "--list"]) == 0
    assert f"{KILL}  " in (said := capsys.readouterr().out)
    assert "not in the shape of this release" in said


def test_the_newest_end_is_the_one_that_came_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ends that were written in another order, as a sidecar that comes back may, are listed by their clock."""
    copy = tmp_path / "record.sqlite"
    shutil.copy(RECORD, copy)
    with closing(sqlite3.connect(copy)) as record, record:
        record.execute("UPDATE incidents SET n = -n")
    said = []
    for path in (RECORD, copy):
        assert main(["report", "--record", str(path), "--list"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert main(["report", "--record", str(copy), "--text"]) == 0
    assert KILL in capsys.readouterr().out


def test_the_list_has_a_line_for_each_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A verdict that quotes an exception of several lines, and a model with a break in its name, take one line each."""
    copy = tmp_path / "record.sqlite"
    shutil.copy(RECORD, copy)
    with closing(sqlite3.connect(copy)) as record, record:
        change = "UPDATE incidents SET document=json_set(document, '$.summary', ?, '$.model', ?) WHERE id=?"
        record.execute(change, ("ended after ValueError: one\ntwo\n\nthree", "a\nb", KILL))
    assert main(["report", "--record", str(copy), "--list"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(KILL)]
    assert "  a b  " in line
    assert line.endswith("ended after ValueError: one two three")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A page that does not fit is one line, and no half of it."""
    command = [sys.executable, "-m", "guard.cli", "report", "--record", str(RECORD), "-o", str(tmp_path / "page.html")]

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50, preexec_fn=small)
    assert done.returncode == 2
    assert "File too large" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_full_device(refused: Refused) -> None:
    """A device is written to, not replaced; that it is full is one line."""
    assert refused("-o", "/dev/full") == "oomguard: report: /dev/full: No space left on device"


def test_a_pipe_that_closes_early() -> None:
    """`oomguard report | head` ends quietly."""
    shell = f"'{sys.executable}' -m guard.cli report --text --record '{RECORD}' | head -n 1"
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.startswith("demo ended 2026-11-30T13:24:18.700Z")
    assert done.stderr == ""


def test_a_terminal_gets_colour_and_its_own_width(tmp_path: Path) -> None:
    """On a terminal the text is coloured and as wide as that is."""
    shutil.copy(RECORD, tmp_path / "record.sqlite")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "guard.cli", "report", "--text", "--record", str(tmp_path)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "70", "PYTHONIOENCODING": "utf-8"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        os.close(theirs)
        said = b""
        while chunk := _read(ours):
            said += chunk
        assert process.wait(30) == 0
    os.close(ours)
    assert b"\x1b[1;31mA memory limit killed it" in said


def _read(end: int) -> bytes:
    try:
        return os.read(end, 65536)
    except OSError:  # EIO: the other side is closed
        return b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_poor_encodings(encoding: str, tmp_path: Path) -> None:
    """A terminal without Unicode gets a report all the same; the page is UTF-8 whatever the terminal."""
    done = run(folder=tmp_path, PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert done.stdout.isascii()
    (file,) = tmp_path.iterdir()
    assert "\N{MINUS SIGN}5" in file.read_text("utf-8")
