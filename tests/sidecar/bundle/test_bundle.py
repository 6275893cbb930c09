"""`oomguard bundle` as people run it: what is in it, what is not, and what is said about it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from guard.kernel import identity
from guard.kernel.locate import locate
from guard.kernel.reader import Reader
from guard.model import Known
from sidecar.bundle.packing import MOST_BYTES, Cover, pack
from sidecar.bundle.parts import PART_BYTES, Part, json_lines
from sidecar.cli import main
from tests.sidecar.outputs.board_makers import event, incident, sample
from tests.sidecar.record.keeping import Content, at, keep, series

SECRETS = ("zanzibar", "quokka", "hf_Wombat", "orca-70b", "narwhal")
PARTS = {"README.txt", "manifest.json", "incidents.jsonl", "record.json", "events.jsonl", "samples.jsonl"}
PARTS |= {"series/01.jsonl", "settings.json", "doctor.json", "versions.json", "logs/01.log"}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A record full of names, of a model whose process is this one."""
    model = "zanzibar-chat"
    end = incident("34360a9bd4aeb602")
    summary = "loading /srv/quokka/orca-70b.gguf, HF_TOKEN=hf_Wombat12345, out of memory: narwhal"
    verdict = replace(end.verdict, summary=summary, fields={"failure_message": "out of memory: narwhal"})
    end = replace(end, model=model, verdict=verdict)
    boot = identity.boot_id(Reader())
    start = identity.start_ticks(Reader())
    assert isinstance(boot, Known)
    assert isinstance(start, Known)
    life = {"boot_id": boot.value, "pid": os.getpid(), "start_ticks": start.value, "session": "34360a9bd4aeb602"}
    content = Content(
        samples=[sample(at(second), model) for second in range(3)],
        events=[replace(event(1), model=model, kind="model_started", text=f"{model} on quokka-host", fields=life)],
        incidents=[(end, series([sample(at(second), model) for second in range(3)]))],
    )
    folder = tmp_path / "shared"
    folder.mkdir()
    return keep(folder / "record.sqlite", content)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of a sidecar, with a line that is none of its own."""
    path = tmp_path / "sidecar.log"
    lines = ({"event": "model_seen", "model": "zanzibar-chat", "bytes": 7}, "Traceback of quokka at /srv/narwhal.py:3")
    path.write_text("".join(line + "\n" if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def unpacked(data: bytes) -> dict[str, bytes]:
    """The files of a bundle."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = [one.name for one in archive if one.isfile()]
        assert all(name.startswith("oomguard-bundle/") and ".." not in name for name in names)
        files = {}
        for name in names:
            file = archive.extractfile(name)
            assert file is not None
            files[name.removeprefix("oomguard-bundle/")] = file.read()
        return files


def test_a_bundle_has_all_parts_and_no_name(
    record: Path, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every part is there, no secret in any of them or in their names; the list is printed, and that it stays here."""
    monkeypatch.setenv("OOMGUARD_PROBE", "http://quokka:hf_Wombat@127.0.0.1:8000/health?key=hf_Wombat")
    monkeypatch.delenv("OOMGUARD_FENCE")
    out = tmp_path / "bundle.tar.gz"
    assert main(["bundle", "--record", str(record), "--log", str(log), "-o", str(out)]) == 0
    files = unpacked(out.read_bytes())
    assert set(files) >= PARTS
    for secret in SECRETS:
        assert [name for name, data in files.items() if secret in name or secret.encode() in data] == []
    said = capsys.readouterr().out
    assert "It was sent nowhere; look into it before you attach it." in said
    assert all(f"  {name} " in said for name in PARTS - {"README.txt", "manifest.json"})
    assert "series/01.jsonl" in files["README.txt"].decode()
    assert out.stat().st_mode & 0o777 == 0o600
    assert json.loads(files["settings.json"])["changed"]["probe"][0]["where"] == "http://127.0.0.1:8000/health"


def test_a_bundle_tells_what_explains_the_end(record: Path, log: Path, tmp_path: Path) -> None:
    """Class, figures, the same stand-in for the model everywhere, kernel files of the model's process."""
    out = tmp_path / "bundle.tar.gz"
    assert main(["bundle", "--record", str(record), "--log", str(log), "-o", str(out)]) == 0
    files = unpacked(out.read_bytes())
    end = json.loads(files["incidents.jsonl"])
    assert (end["class"], end["id"], end["model"]) == ("cgroup_oom", "34360a9bd4aeb602", "model-1")
    assert end["last_sample"] is not None
    samples = [json.loads(line) for line in files["samples.jsonl"].splitlines()]
    assert [(one["model"], one["levels"][0]["current"]) for one in samples] == [("model-1", 104857600)] * 3
    assert len(files["series/01.jsonl"].splitlines()) == 3
    assert json.loads(files["logs/01.log"].splitlines()[0]) == {"event": "model_seen", "model": "model-1", "bytes": 7}
    assert f"\nPid:\t{os.getpid()}\n" in files["tree/proc/self/status"].decode()
    manifest = {one["name"]: one["bytes"] for one in json.loads(files["manifest.json"])}
    assert manifest == {name: len(data) for name, data in files.items() if name not in {"README.txt", "manifest.json"}}


def test_the_kernel_files_of_a_bundle_can_be_read_like_the_real_ones(record: Path, tmp_path: Path) -> None:
    """Names of cgroups are hidden alike in folders, memberships and mounts, so the levels are found again."""
    out = tmp_path / "bundle.tar.gz"
    assert main(["bundle", "--record", str(record), "-o", str(out)]) == 0
    for name, data in unpacked(out.read_bytes()).items():
        if name.startswith("tree/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)
    real, hidden = locate(Reader()), locate(Reader(str(tmp_path / "tree")))
    assert isinstance(real, Known)
    assert isinstance(hidden, Known)
    assert len(hidden.value.levels) == len(real.value.levels)


def test_without_redaction_names_stay_and_tokens_do_not(
    record: Path, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said what is in it then; what an exception quoted is not."""
    out = tmp_path / "bundle.tar.gz"
    assert main(["bundle", "--record", str(record), "--log", str(log), "--no-redact", "-o", str(out)]) == 0
    data = b"".join(unpacked(out.read_bytes()).values())
    assert b"zanzibar-chat" in data
    assert b"/srv/quokka/orca-70b.gguf" in data
    assert b"out of memory *" in data
    assert b"out of memory: narwhal" not in data
    assert b"hf_Wombat" not in data
    assert "Names are NOT hidden (--no-redact)" in capsys.readouterr().out


def test_a_bundle_goes_to_a_pipe(record: Path) -> None:
    """As from `kubectl exec ... oomguard bundle -o - > bundle.tar.gz`; the list goes to standard error."""
    command = [sys.executable, "-m", "sidecar.cli", "bundle", "--record", str(record), "-o", "-"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=50)
    assert done.returncode == 0
    assert "README.txt" in unpacked(done.stdout)
    assert b"It was sent nowhere" in done.stderr


def test_without_a_record_there_is_still_something_to_send(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the sidecar keeps none, doctor and kernel files are told, and what is missing is."""
    monkeypatch.setenv("OOMGUARD_DIR", str(tmp_path))
    monkeypatch.setenv("OOMGUARD_TICK", "wrong")
    out = tmp_path / "bundle.tar.gz"
    assert main(["bundle", "-o", str(out)]) == 0
    files = unpacked(out.read_bytes())
    assert "doctor.json" in files
    assert "incidents.jsonl" not in files
    said = capsys.readouterr().err
    assert f"without a record: there is no record at {tmp_path}/record.sqlite" in said
    assert "settings cannot be read: environment: unknown variable OOMGUARD_TICK" in said
    assert "Note: without a record" in files["README.txt"].decode()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--record", "/nowhere"), "there is no record at /nowhere; the sidecar keeps it in OOMGUARD_DIR"),
        (("--log", "/nowhere/x.log"), "the log /nowhere/x.log is not a file that can be read"),
        (("-o", "/nowhere/b.tar.gz"), "/nowhere/b.tar.gz: No such file or directory"),
        (("-o", "/etc/hostname"), "/etc/hostname is there already; give another name, or --force to replace it"),
        (("-o", "/dev/full"), "/dev/full: No space left on device"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    """It says what is wrong; no traceback, nothing is left."""
    assert main(["bundle", *words]) == 2
    out, said = capsys.readouterr()
    assert (out, said) == ("", f"oomguard: bundle: {message}\n")


def test_an_interruption_leaves_no_half_bundle(tmp_path: Path) -> None:
    """Ctrl-C in the middle."""
    record = keep(tmp_path / "record.sqlite", Content(samples=[sample(at(second)) for second in range(900)]))
    out = tmp_path / "out"
    out.mkdir()
    words = ("--record", str(record), "-o", str(out / "bundle.tar.gz"))
    command = subprocess.Popen(
        [sys.executable, "-m", "sidecar.cli", "bundle", *words], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 30
    while not list(out.iterdir()) and command.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=30)
    assert (command.returncode, said) == (130, "oomguard: bundle: interrupted, nothing is left behind\n")
    assert list(out.iterdir()) == []


def test_a_bundle_stays_within_its_bound() -> None:
    """What cannot be packed smaller fills it; the rest is left out and said to be."""
    noise = os.urandom(PART_BYTES)
    file = io.BytesIO()
    parts = [Part(f"{number}.bin", "noise", lambda: noise) for number in range(5)]
    listed = pack(parts, file, Cover("head", 1.7e9), lambda _: None)
    assert len(file.getvalue()) <= MOST_BYTES
    assert [one.size for one in listed] == [PART_BYTES, PART_BYTES, None, None, None]
    assert "left out, no room" in unpacked(file.getvalue())["README.txt"].decode()


def test_lines_beyond_a_part_go_the_oldest_first() -> None:
    """The newest ones are what explains an end."""
    line = "x" * (1 << 20)
    kept = json_lines({"n": number, "text": line} for number in range(12))
    assert kept is not None
    assert len(kept) <= PART_BYTES
    assert [json.loads(one)["n"] for one in kept.splitlines()] == list(range(5, 12))
