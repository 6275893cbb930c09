"""The commands: what they print, and their exit status."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.cli import main
from sidecar.settings_load import keys
from tests.sidecar.daemons import Daemon

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("OOMGUARD"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "COMMAND"),
        (["fly"], "fly"),
        (["sidecar", "--colour", "red"], "--colour"),
        (["sidecar", "--dir"], "--dir"),
        (["sidecar", "--sight", "xray"], "sight"),
        (["sidecar", "--config", "/absent.toml"], "/absent.toml"),
        (["doctor", "--listen", "x"], "HOST:PORT"),
        (["settings"], "FILE"),
        (["settings", "/absent.toml"], "/absent.toml"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(words: list[str], said: str, capsys: Capture) -> None:
    """Every mistake on the command line is named in one line."""
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("host", ["a..b", "no-such-host.invalid", "192.0.2.1"])
def test_an_address_that_cannot_be_listened_on_is_one_line(host: str, tmp_path: Path) -> None:
    """Whatever is wrong with the host, daemon and doctor name it in words."""
    where = ["--dir", str(tmp_path / "shared"), "--listen", f"{host}:9475"]
    command = [sys.executable, "-m", "sidecar.cli"]
    daemon = subprocess.run([*command, "sidecar", *where], capture_output=True, text=True, timeout=50, check=False)
    assert (daemon.returncode, daemon.stdout, daemon.stderr.count("\n")) == (2, "", 1)
    assert daemon.stderr.startswith(f"oomguard sidecar: cannot listen on {host}:9475: ")
    assert "Unknown error" not in daemon.stderr
    doctor = subprocess.run([*command, "doctor", *where], capture_output=True, text=True, timeout=50, check=False)
    assert (doctor.returncode, doctor.stderr) == (1, "")
    assert f"{host}:9475: " in doctor.stdout


def test_check_says_that_a_file_is_good(tmp_path: Path, capsys: Capture) -> None:
    """A good file is status 0."""
    file = tmp_path / "oomguard.toml"
    file.write_text('name = "vllm"\n[health]\nperiod_seconds = 5\n')
    assert main(["settings", str(file)]) == 0
    assert "good" in capsys.readouterr().out


def test_help_lists_every_setting_with_its_meaning(capsys: Capture) -> None:
    """The help of the daemon has a flag, a sentence and the default for each setting."""
    assert main(["sidecar", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for key in keys():
        assert key.flag in text
    assert "Consecutive failures after which the plain rule fails the model." in text
    assert "[0.0.0.0:9475]" in text


def findings(capsys: Capture, *flags: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Run the doctor; give its status and its findings by subject."""
    status = main(["doctor", "--json", *flags])
    return status, {one["subject"]: one for one in json.loads(capsys.readouterr().out)["findings"]}


def test_doctor_in_a_good_place(tmp_path: Path, capsys: Capture) -> None:
    """With a writable directory and a free port nothing is missing, and every subject has a grade and a sentence."""
    status, found = findings(capsys, "--dir", str(tmp_path), "--listen", "127.0.0.1:0")
    assert status == 0
    assert {"packages", "directory", "record", "hand-over", "port"} <= {
        subject for subject, one in found.items() if one["grade"] == "ok"
    }
    assert all(one["text"] for one in found.values())
    assert all(one["advice"] for one in found.values() if one["grade"] != "ok")
    assert {path.name for path in tmp_path.iterdir()} == set()


def test_doctor_names_what_is_missing(tmp_path: Path, capsys: Capture) -> None:
    """A missing directory and a taken port are told with what to do, and the status is 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        status, found = findings(capsys, "--dir", str(tmp_path / "absent"), "--listen", listen)
    assert status == 1
    assert found["directory"]["grade"] == "missing"
    assert "emptyDir" in found["directory"]["advice"]
    assert found["port"]["grade"] == "limited"
    assert f"(process {os.getpid()})" in found["port"]["text"]


def test_doctor_tells_a_stale_socket_from_a_strange_file(tmp_path: Path, capsys: Capture) -> None:
    """A socket that nobody listens on is replaced by the daemon; another kind of file is in the way."""
    path = tmp_path / "link.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(path))
    assert "left over" in findings(capsys, "--dir", str(tmp_path))[1]["hand-over"]["text"]
    path.unlink()
    path.write_text("")
    assert findings(capsys, "--dir", str(tmp_path))[1]["hand-over"]["grade"] == "missing"


def test_doctor_asks_the_supervisors(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """None at all, one that is set but not here, and one that does not answer: each is told with what to do."""
    account = ("--supervised-service-account", str(tmp_path), "--dir", str(tmp_path))
    assert findings(capsys, "--supervisor", "none", *account)[1]["supervisor"]["grade"] == "ok"
    found = findings(capsys, "--supervisor", "kubernetes", *account)[1]["supervisor"]
    assert (found["grade"], "no token" in found["text"]) == ("limited", True)
    assert "supervisor-role.yaml" in found["advice"]
    (tmp_path / "token").write_text("x")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    found = findings(capsys, "--supervisor", "kubernetes", *account)[1]["supervisor"]
    assert (found["grade"], "namespace" in found["text"]) == ("limited", True)


def test_doctor_says_that_a_damaged_record_is_moved_aside(tmp_path: Path, capsys: Capture) -> None:
    """Garbage in place of the record is limited, not fatal."""
    (tmp_path / "record.sqlite").write_bytes(b"garbage " * 1000)
    assert findings(capsys, "--dir", str(tmp_path))[1]["record"]["grade"] == "limited"


def test_doctor_for_people(tmp_path: Path, capsys: Capture) -> None:
    """The text has one line a finding, advice below it."""
    main(["doctor", "--dir", str(tmp_path / "absent")])
    lines = capsys.readouterr().out.splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("missing  directory"))
    assert lines[row + 1].strip().startswith("-> ")


def test_closed_outputs_are_told_as_full_ones(tmp_path: Path) -> None:
    """A command that is started without standard output says that nothing can be written there."""
    settings = tmp_path / "oomguard.toml"
    settings.touch()
    for words in (["settings", str(settings)], ["doctor", "--supervisor", "none"], ["explain", str(settings)]):
        command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "guard.cli", *words]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=50)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert done.stderr.endswith("standard output: No space left on device\n")


def test_a_daemon_without_outputs_logs_into_no_file_of_its_own(tmp_path: Path) -> None:
    """Started without standard streams it holds their numbers, so that its log goes nowhere."""
    with Daemon(tmp_path / "shared", tmp_path / "log", under='exec "$@" <&- >&- 2>&-') as daemon:
        names = [str(Path(f"/proc/{daemon.process.pid}/fd/{number}").readlink()) for number in range(3)]
        assert names == [os.devnull, "/dev/full", os.devnull]
        assert daemon.stop() == 0


def test_doctor_on_an_output_that_takes_nothing(tmp_path: Path) -> None:
    """What doctor found and cannot be written is one line and status 2."""
    command = [sys.executable, "-m", "guard.cli", "doctor", "--dir", str(tmp_path), "--supervisor", "none"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=50)
    assert done.stderr == b"oomguard: standard output: No space left on device\n"
    assert done.returncode == 2
