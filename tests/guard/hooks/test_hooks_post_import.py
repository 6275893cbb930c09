"""Hooks that run after the host's own imports."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from guard.hooks.post_import import PostImport


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path whose modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def _awaiting(*names: str) -> tuple[PostImport, list[ModuleType]]:
    finder = PostImport()
    seen: list[ModuleType] = []
    for name in names:
        finder.when_imported(name, seen.append)
    return finder, seen


def test_runs_after_the_import_and_leaves(folder: Path) -> None:
    """The hook gets the finished module once; spec and loader are the host's own, and the finder is gone."""
    (folder / "awaited_a.py").write_text("value = 1")
    finder, seen = _awaiting("awaited_a")
    module = importlib.import_module("awaited_a")
    assert [module] == seen
    assert seen[0].value == 1
    assert finder not in sys.meta_path
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    assert "exec_module" not in vars(module.__loader__)
    importlib.reload(module)
    assert [module] == seen


def test_module_that_is_there_already(folder: Path) -> None:
    """A module that was imported before is handed over at once; nothing is put into the import system."""
    (folder / "awaited_b.py").touch()
    module = importlib.import_module("awaited_b")
    finder, seen = _awaiting("awaited_b")
    assert [module] == seen
    assert finder not in sys.meta_path


def test_import_that_fails_can_be_tried_again(folder: Path) -> None:
    """The host sees the error of its module as it is; the hook runs when a later import works."""
    (folder / "awaited_c.py").write_text("raise LookupError('broken module')")
    _, seen = _awaiting("awaited_c")
    with pytest.raises(LookupError, match="broken module") as caught:
        importlib.import_module("awaited_c")
    assert not any("guard/api" in str(entry.path) for entry in caught.traceback)
    assert seen == []
    (folder / "awaited_c.py").write_text("value = 'now it works'")
    importlib.invalidate_caches()
    assert [importlib.import_module("awaited_c")] == seen


def test_package_and_submodule(folder: Path) -> None:
    """A submodule is awaited without its package; importing the package alone does not run the hook."""
    (folder / "awaited_d").mkdir()
    (folder / "awaited_d" / "__init__.py").touch()
    (folder / "awaited_d" / "part.py").touch()
    _, seen = _awaiting("awaited_d.part")
    importlib.import_module("awaited_d")
    assert seen == []
    assert [importlib.import_module("awaited_d.part")] == seen


def test_loader_shared_by_a_whole_archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One loader for many modules (zip imports) runs our hook for the awaited module alone."""
    archive = folder / "some.zip"
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("awaited_e.py", "import other_e")
        writer.writestr("other_e.py", "value = 1")
    monkeypatch.syspath_prepend(str(archive))
    _, seen = _awaiting("awaited_e")
    assert [importlib.import_module("awaited_e")] == seen
    assert "other_e" in sys.modules


def test_missing_module_is_missing() -> None:
    """An awaited module that does not exist raises what it always raised."""
    finder, seen = _awaiting("awaited_nowhere")
    with pytest.raises(ModuleNotFoundError, match="awaited_nowhere"):
        importlib.import_module("awaited_nowhere")
    assert seen == []
    finder.forget()
    assert finder not in sys.meta_path


def test_hook_that_raises(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that fails does not fail the host's import."""
    monkeypatch.setenv("OOMGUARD_FENCE", "")
    (folder / "awaited_f.py").touch()
    finder = PostImport()

    def broken(_module: ModuleType) -> None:
        raise RuntimeError("broken hook")

    finder.when_imported("awaited_f", broken)
    assert importlib.import_module("awaited_f").__name__ == "awaited_f"
