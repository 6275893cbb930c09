"""The `oomguard` command."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from guard.cli import SIDECAR_COMMANDS
from guard.place import RELEASE
from tests.guard.hosts import ROOT, SITE, Ended, environment, run_command


def _oomguard(shared: Path, *words: str) -> Ended:
    return run_command([sys.executable, "-m", "guard.cli", *words], environment(shared))


def test_help_lists_every_command(tmp_path: Path) -> None:
    """`--help` names each command, those of the sidecar included."""
    ended = _oomguard(tmp_path, "--help")
    assert ended.returncode == 0
    for name in ("run", "check", "record-tree", "site-dir", *SIDECAR_COMMANDS):
        assert re.search(rf"^    {name}\b", ended.out, re.MULTILINE), name


def test_version_is_the_packages(tmp_path: Path) -> None:
    """`--version` prints the release that the package is built as."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == RELEASE
    assert _oomguard(tmp_path, "--version").out == f"oomguard {RELEASE}\n"


def test_site_dir(tmp_path: Path) -> None:
    """`site-dir` prints the folder that activates the guard."""
    assert _oomguard(tmp_path, "site-dir").out == f"{SITE}\n"
    assert (SITE / "sitecustomize.py").is_file()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("no-such-command",),
        ("run",),
        ("run", "--"),
        ("run", "--no-such-option", "--", "true"),
        ("run", "--name"),
        ("record-tree",),
        ("record-tree", "folder", "--pid", "nobody"),
        ("record-tree", "folder", "--pid", "0"),
        ("record-tree", "/proc/folder"),
        ("record-tree", ""),
        ("record-tree", "folder", "--pid", str(1 << 30)),
        ("record-tree", "folder", "--pid", "1" * 9999),
        ("site-dir", "more"),
    ],
    ids=" ".join,
)
def test_wrong_usage(words: tuple[str, ...], tmp_path: Path) -> None:
    """Wrong usage is told in words with status 2, and never by a traceback."""
    ended = run_command([sys.executable, "-m", "guard.cli", *words], environment(tmp_path), cwd=ROOT)
    assert (ended.returncode, ended.out) == (2, "")
    assert "oomguard" in ended.err
    assert "Traceback" not in ended.err
    assert "_pid" not in ended.err, "a name of ours"
    assert list(tmp_path.iterdir()) == []
    assert not (ROOT / "folder").exists()


def test_record_tree(tmp_path: Path) -> None:
    """`record-tree` records the caller's kernel files and says where; a second run into the same folder is refused."""
    folder = tmp_path / "tree"
    ended = _oomguard(tmp_path, "record-tree", str(folder), "--pid", "1")
    assert (ended.returncode, ended.err) == (0, "")
    assert str(folder / "origin.toml") in ended.out
    assert (folder / "proc" / "self" / "status").read_text().splitlines()[0].startswith("Name:")
    again = _oomguard(tmp_path, "record-tree", str(folder))
    assert again.returncode == 2
    assert again.err.startswith("oomguard record-tree: ")
    under = _oomguard(tmp_path, "record-tree", "/dev/null/tree")
    assert (under.returncode, under.err) == (2, "oomguard record-tree: /dev/null/tree: Not a directory\n")


@pytest.mark.parametrize(("output", "why"), [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")])
def test_an_output_that_takes_nothing_is_one_line(output: str, why: str, tmp_path: Path) -> None:
    """Standard output that is closed or full is told on standard error, with status 2."""
    for words in (["site-dir"], ["record-tree", str(tmp_path / f"tree{len(why)}")]):
        command = ["sh", "-c", f'exec "$@" {output}', "sh", sys.executable, "-m", "guard.cli", *words]
        assert run_command(command, environment(tmp_path)) == Ended(2, "", f"oomguard standard output: {why}\n")


def test_a_folder_of_any_name_is_recorded_into(tmp_path: Path) -> None:
    """A name that is no UTF-8 is shown as well as can be."""
    folder = f"{tmp_path}/tree\udcff"
    command = [sys.executable, "-m", "guard.cli", "record-tree", folder]
    ended = run_command(command, environment(tmp_path, {"PYTHONIOENCODING": "utf-8:strict"}))
    assert (ended.returncode, ended.err) == (0, "")
    assert "tree\\udcff/origin.toml" in ended.out
    assert Path(folder, "origin.toml").exists()


def test_sidecar_commands_without_the_sidecar(tmp_path: Path) -> None:
    """Without the daemon's package its commands say how to install it; the guard's own commands work."""
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "guard").symlink_to(ROOT / "guard")
    env = {**environment(tmp_path), "PYTHONPATH": str(alone)}
    base = str(Path(sys.base_prefix) / "bin" / "python3")
    for name in SIDECAR_COMMANDS:
        ended = run_command([base, "-m", "guard.cli", name], env, cwd=tmp_path)
        assert (ended.returncode, ended.out) == (2, "")
        assert ended.err.startswith(f"oomguard {name}: sidecar is missing; install the daemon: pip install")
    assert run_command([base, "-m", "guard.cli", "run", "--", "echo", "ran"], env, cwd=tmp_path).out == "ran\n"


@pytest.mark.parametrize(("name", "reached"), [("llm", "llm"), (" my\nmodel\n", "my model")])
def test_name_and_directory_reach_the_server(name: str, reached: str, tmp_path: Path) -> None:
    """`--name` and `--dir` are in the server's environment, the name as one line, the directory as an absolute path."""
    command = [sys.executable, "-m", "guard.cli", "run", "--name", name, "--dir", "shared", "--", "env"]
    env = {**environment(tmp_path), "PYTHONPATH": str(ROOT)}
    lines = run_command(command, env, cwd=tmp_path).out.splitlines()
    assert {f"OOMGUARD_NAME={reached}", f"OOMGUARD_DIR={tmp_path / 'shared'}", "OOMGUARD=on"} <= set(lines)
    assert f"PYTHONPATH={SITE}:{ROOT}" in lines


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_an_isolated_python_runs_without_the_guard_as_the_help_says(option: str, tmp_path: Path) -> None:
    """Such a server runs as ever, and `run --help` names the option and what a model is."""
    server = [sys.executable, option, "-c", "import sys; print('_oomguard' in sys.modules)"]
    assert _oomguard(tmp_path, "run", "--", *server).out == "False\n"
    said = " ".join(_oomguard(tmp_path, "run", "--help").out.split())
    assert option in said
    assert "A model is a cgroup and a name" in said


def test_the_help_of_check_says_what_an_unreachable_sidecar_means(tmp_path: Path) -> None:
    """A health check that nobody answers passes for livez alone, and wrong usage is 2."""
    said = " ".join(_oomguard(tmp_path, "check", "--help").out.split())
    assert "0 passed, 1 failed, 2 wrong usage" in said
    assert "cannot be asked, livez passes and readyz and startupz fail" in said
