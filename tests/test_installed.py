"""The wheel, installed by itself into a clean environment: what it holds, and the command among strangers."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.guard.hosts import ROOT, Ended, environment, run_command

_STRANGER = "WHO = 'the server'\n"
_SERVER = "import guard; print(guard.WHO)"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=50)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def prefix(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it, without any package that the sidecar needs."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, symlinks=True)
    python = str(folder / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=50)
    return folder


def _oomguard(prefix: Path, shared: Path, *words: str, path: str = "", cwd: Path | None = None) -> Ended:
    return run_command([str(prefix / "bin" / "oomguard"), *words], environment(shared, {"PYTHONPATH": path}), cwd=cwd)


def test_the_wheel_holds_the_two_packages(wheel: Path) -> None:
    """Nothing else is installed: no tests, no `.pth`, no third module."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"guard", "sidecar"}
    assert "sidecar/report/style.css" in names


@pytest.mark.parametrize("kind", ["module", "package", "cwd"])
def test_a_server_with_a_guard_of_its_own(kind: str, prefix: Path, tmp_path: Path) -> None:
    """Where PYTHONPATH or the folder has another `guard`, the command works, and the server gets its own."""
    stranger = tmp_path / "server"
    (stranger / "guard").mkdir(parents=True)
    file = stranger / "guard" / "__init__.py" if kind == "package" else stranger / "guard.py"
    file.write_text(_STRANGER)
    if kind != "package":
        (stranger / "guard").rmdir()
    path = "" if kind == "cwd" else str(stranger)
    python = str(prefix / "bin" / "python")
    ended = _oomguard(prefix, tmp_path, "run", "--", python, "-c", _SERVER, path=path, cwd=stranger)
    assert ended == Ended(0, "the server\n", "")
    for words in (("--version",), ("site-dir",), ("explain", "/dev/null")):
        ended = _oomguard(prefix, tmp_path, *words, path=path, cwd=stranger)
        assert (ended.returncode, ended.err) == (0, ""), words


def test_a_guarded_shell_may_call_the_command(prefix: Path, tmp_path: Path) -> None:
    """Within a server that `oomguard run` started, the command works too, though the guard is active already."""
    oomguard = str(prefix / "bin" / "oomguard")
    ended = _oomguard(
        prefix, tmp_path, "run", "--", "sh", "-c", f"{oomguard} run -- echo inner && {oomguard} --version"
    )
    assert (ended.returncode, ended.err) == (0, "")
    assert ended.out.startswith("inner\noomguard ")


@pytest.mark.parametrize("command", ["sidecar", "doctor", "explain"])
def test_an_early_interrupt_is_no_traceback(command: str, prefix: Path, tmp_path: Path) -> None:
    """Ctrl-C while the command is still being imported ends it with 130, or by the signal, and without a word."""
    (tmp_path / "argparse.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)\n")
    ended = _oomguard(prefix, tmp_path, command, path=str(tmp_path))
    assert ended.returncode in (130, -2)
    assert (ended.out, ended.err) == ("", "")


def test_the_daemon_without_its_packages(prefix: Path, tmp_path: Path) -> None:
    """Without the extra, one line names what is missing and how it is installed; status 2. The doctor says it too."""
    ended = _oomguard(prefix, tmp_path, "sidecar", "--listen", "127.0.0.1:0")
    assert (ended.returncode, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert ended.err.startswith("oomguard: the package ")
    assert "pip install 'oomguard[sidecar]'" in ended.err
    found = _oomguard(prefix, tmp_path, "doctor", "--listen", "127.0.0.1:0")
    assert (found.returncode, found.err) == (1, "")
    assert found.out.startswith("missing  packages     the daemon cannot start: No module named ")


def test_what_needs_no_packages_works_without(prefix: Path, tmp_path: Path) -> None:
    """Settings are checked and logs explained by the bare wheel; wrong usage is told as always."""
    file = tmp_path / "oomguard.toml"
    file.write_text('name = "vllm"\n')
    assert _oomguard(prefix, tmp_path, "settings", str(file)) == Ended(0, f"{file}: good\n", "")
    log = ROOT / "tests" / "corpus" / "raw" / "a49.txt"
    assert "global_oom" in _oomguard(prefix, tmp_path, "explain", str(log)).out
    assert _oomguard(prefix, tmp_path, "sidecar", "--colour", "red").returncode == 2
