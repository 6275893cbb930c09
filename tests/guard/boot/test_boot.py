"""The guard in servers that do not know of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guard.hosts import ROOT, SITE, boxes, environment, only_box, run_command, run_host

GUARD_OF_THE_SERVER = "VALUE = 'the server has a guard of its own'\n"
SHOW = "import guard, sys; print(guard.VALUE, sys.modules['_oomguard'].install().active)\n"


def _script(folder: Path, text: str, **others: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in others.items():
        (folder / f"{name}.py").write_text(content)
    script = folder / "app.py"
    script.write_text(text)
    return script


def test_servers_own_guard_module_wins(tmp_path: Path) -> None:
    """A `guard.py` beside the script is what the script imports; ours works beside it."""
    script = _script(tmp_path / "app", SHOW, guard=GUARD_OF_THE_SERVER)
    ended = run_command([sys.executable, str(script)], environment(tmp_path, activated=True))
    assert (ended.out, ended.err) == ("the server has a guard of its own True\n", "")
    assert only_box(tmp_path).command == f"{sys.executable} {script}"


def test_servers_own_guard_package_with_submodules(tmp_path: Path) -> None:
    """A package `guard` of the server, found by a path that it adds late, is imported whole, also below our names."""
    package = tmp_path / "late" / "guard"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(GUARD_OF_THE_SERVER)
    (package / "model.py").write_text("MODEL = 'theirs'\n")
    late = f"import sys; sys.path.insert(0, {str(tmp_path / 'late')!r})\nfrom guard.model import MODEL; print(MODEL)\n"
    script = _script(tmp_path / "app", late + SHOW)
    ended = run_command([sys.executable, str(script)], environment(tmp_path, activated=True))
    assert (ended.out, ended.err) == ("theirs\nthe server has a guard of its own True\n", "")


def test_finder_of_old_on_the_path(tmp_path: Path) -> None:
    """An import finder of the server without `find_spec` (Python warns and goes on) fails no import of `guard`."""
    script = _script(
        tmp_path / "app",
        "import sys, warnings\nwarnings.simplefilter('ignore')\n"
        "class Old:\n    def find_module(self, name, path=None): return None\n"
        "sys.meta_path.insert(1, Old())\n" + SHOW,
        guard=GUARD_OF_THE_SERVER,
    )
    ended = run_command([sys.executable, str(script)], environment(tmp_path, activated=True))
    assert (ended.out, ended.err) == ("the server has a guard of its own True\n", "")


@pytest.mark.parametrize("with_ours_on_path", [True, False])
def test_public_names_are_the_active_ones(with_ours_on_path: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case
    """A server that imports our `guard` gets the package that is active already, installed beside it or not."""
    path = f"import sys; sys.path.append({str(ROOT)!r})\n" if with_ours_on_path else ""
    ended = run_host(
        path + "import guard, guard.api, sys\n"
        "from guard.model import LifeId\n"
        "assert guard is sys.modules['_oomguard'] and guard.api is sys.modules['_oomguard.api']\n"
        "assert guard.install() is guard.api.prepare()\n"
        "guard.beat('loop')\n"
        "print(LifeId.__module__, guard.status().hooks['excepthook'], guard.status().trouble_count)",
        tmp_path,
        activated=True,
    )
    assert (ended.out, ended.err) == ("_oomguard.model installed 0\n", "")
    assert [beat.name for beat in only_box(tmp_path).beats] == ["loop"]


def test_a_module_of_ours_runs_as_a_program(tmp_path: Path) -> None:
    """`python -m` works within a guarded server, for the command too; a name that is none of ours is not found."""
    env = environment(tmp_path, activated=True)
    ended = run_command([sys.executable, "-m", "guard.cli", "run", "--", "sh", "-c", "exit 3"], env)
    assert (ended.returncode, ended.err) == (3, "")
    ended = run_command([sys.executable, "-m", "guard.no_such_module"], env)
    assert "No module named guard.no_such_module" in ended.err


def test_all_of_our_modules_load_under_the_other_name(tmp_path: Path) -> None:
    """No module of ours says `guard` in a way that the alias does not reach."""
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / "guard").rglob("*.py"))
        if path.parent.name != "site"
    ]
    aliases = ["_oom" + name for name in names if name != "guard.boot"]
    ended = run_host(
        f"import importlib, sys\nfor name in {aliases!r}: importlib.import_module(name)\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'guard'])",
        tmp_path,
        activated=True,
    )
    assert (ended.out, ended.err) == ("[]\n", "")


def test_sitecustomize_of_the_server_runs(tmp_path: Path) -> None:
    """The next `sitecustomize` on the path is imported under that name, and our folder is gone from the path."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("WHO = 'theirs'\nprint('ran')\n")
    env = environment(tmp_path, {"PYTHONPATH": f"{SITE}:{tmp_path / 'theirs'}"}, activated=True)
    code = "import sitecustomize, sys; print(sitecustomize.WHO, sitecustomize.__file__, sys.path)"
    ended = run_command([sys.executable, "-c", code], env)
    assert ended.err == ""
    ran, shown = ended.out.splitlines()
    assert ran == "ran"
    assert shown.startswith(f"theirs {tmp_path / 'theirs' / 'sitecustomize.py'}")
    assert str(SITE) not in shown


def test_sitecustomize_of_the_server_that_fails(tmp_path: Path) -> None:
    """A `sitecustomize` that raises is reported by Python as without us, and the guard is active nevertheless."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("raise LookupError('theirs')\n")
    code = "import sys; print('_oomguard' in sys.modules)"
    ours = environment(tmp_path, {"PYTHONPATH": f"{SITE}:{theirs}"}, activated=True)
    plain = run_command([sys.executable, "-c", code], environment(tmp_path, {"PYTHONPATH": str(theirs)}))
    guarded = run_command([sys.executable, "-c", code], ours)
    assert (plain.out, guarded.out) == ("False\n", "True\n")
    assert plain.err.replace("\n", "") in guarded.err.replace("\n", "")


def test_our_own_error_leaves_the_server_alone(tmp_path: Path) -> None:
    """A guard that cannot even be read says so in one line, and the server runs."""
    site = tmp_path / "broken" / "site"
    shutil.copytree(SITE, site)
    ended = run_host("print('served')", tmp_path, {"PYTHONPATH": str(site)}, activated=True)
    assert (ended.returncode, ended.out) == (0, "served\n")
    assert ended.err.startswith("oomguard: the guard is off in this process: FileNotFoundError")
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("switch", ["off", "", "0", " No "])
def test_without_the_switch_nothing_is_loaded(switch: str, tmp_path: Path) -> None:
    """With OOMGUARD unset or off our folder on the path only makes room for the next one."""
    ended = run_host("import sys; print('_oomguard' in sys.modules)", tmp_path, {"OOMGUARD": switch}, activated=True)
    assert (ended.out, ended.err) == ("False\n", "")


def test_python_without_our_environment(tmp_path: Path) -> None:
    """A Python that has none of our dependencies runs all hooks; no module from elsewhere is loaded for it."""
    code = (
        "import asyncio, json, multiprocessing.util, sys\n"
        "import guard; guard.install(); print(guard.status().hooks['asyncio_errors'], guard.status().trouble_count)\n"
        "files = [str(getattr(module, '__file__', '')) for module in sys.modules.values()]\n"
        "print([file for file in files if '-packages' in file])\n"
    )
    base = str(Path(sys.base_prefix) / "bin" / "python3")
    ended = run_command([base, "-S", "-c", f"import sitecustomize\n{code}"], environment(tmp_path, activated=True))
    assert (ended.out, ended.err) == ("installed 0\n[]\n", "")
    assert len(boxes(tmp_path)) == 1


def test_helper_opens_nothing(tmp_path: Path) -> None:
    """A Python helper gets hooks but no file, no thread and no descriptor, and its failures are its own business."""
    code = (
        "import os, threading; print(threading.active_count(), len(os.listdir('/proc/self/fd'))); raise OSError('own')"
    )
    helper = run_host(code, tmp_path, activated=True)
    plain = run_host(code, tmp_path)
    assert (helper.out, helper.err) == (plain.out, plain.err)
    assert list(tmp_path.iterdir()) == []


def test_memory_failure_of_a_helper_is_told(tmp_path: Path) -> None:
    """A helper that runs out of memory wakes up to tell it."""
    ended = run_host("bytearray(1 << 62)", tmp_path, activated=True)
    assert len(ended.lines) == 1
    assert only_box(tmp_path).failures[0].kind == "memory_error"


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_python_that_ignores_us(option: str, tmp_path: Path) -> None:
    """Isolated interpreters run without hooks and without a sign of us."""
    code = "import sys; print('_oomguard' in sys.modules)"
    ended = run_command([sys.executable, option, "-c", code], environment(tmp_path, activated=True))
    assert (ended.out, ended.err) == ("False\n", "")


def test_server_reads_its_standard_input(tmp_path: Path) -> None:
    """A program on standard input and an interactive session work, and failures there end nothing."""
    env = environment(tmp_path, activated=True)
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input="import guard; h = guard.install()\nraise MemoryError('typed')\nprint('on')\n",
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == "on\n"
    assert [failure.fatal for failure in only_box(tmp_path).failures] == [False]
