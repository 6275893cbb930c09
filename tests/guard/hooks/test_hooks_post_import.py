"""Hooks that run after the host's own imports."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zipfile
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
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


class _InFront:
    """An import hook of the host, put in front of ours: it finds by itself, lazily if asked to."""

    def __init__(self, name: str, *, lazily: bool = False) -> None:
        self.name = name
        self.lazily = lazily

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """Find the one module."""
        spec = PathFinder.find_spec(name) if name == self.name else None
        if spec is not None and self.lazily:
            assert spec.loader is not None
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


def test_a_finder_in_front_of_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a later import hook finds without asking us is seen with the next awaited import."""
    (folder / "awaited_g.py").touch()
    (folder / "awaited_h.py").touch()
    _, seen = _awaiting("awaited_g", "awaited_h")
    monkeypatch.setattr(sys, "meta_path", [_InFront("awaited_g"), *sys.meta_path])
    first = importlib.import_module("awaited_g")
    assert seen == []
    assert [first, importlib.import_module("awaited_h")] == seen


@pytest.mark.parametrize("in_front", [True, False])
def test_a_lazy_import_stays_lazy(in_front: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a case
    """A module that is loaded at its first use is not used by us; the hook runs after that use."""
    (folder / "awaited_i.py").write_text("import sys\nsys.awaited_i_ran = True\nvalue = 1")
    (folder / "awaited_j.py").touch()
    _, seen = _awaiting("awaited_i", "awaited_j")
    lazy = _InFront("awaited_i", lazily=True)
    where = [lazy, *sys.meta_path] if in_front else [sys.meta_path[0], lazy, *sys.meta_path[1:]]
    monkeypatch.setattr(sys, "meta_path", where)
    monkeypatch.delattr(sys, "awaited_i_ran", raising=False)
    module = importlib.import_module("awaited_i")
    other = importlib.import_module("awaited_j")
    assert (hasattr(sys, "awaited_i_ran"), seen) == (False, [other])
    assert module.value == 1
    assert in_front or seen == [other, module]


def test_asked_for_in_the_middle_of_an_import(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is being imported is handed over once it is whole."""
    (folder / "awaited_k.py").write_text("import sys\nsys.asks_in_the_middle()\nvalue = 1")
    (folder / "awaited_l.py").touch()
    finder = PostImport()
    seen: list[int] = []
    ask = lambda: finder.when_imported("awaited_k", lambda module: seen.append(module.value))  # noqa: E731 - one line
    monkeypatch.setattr(sys, "asks_in_the_middle", ask, raising=False)
    importlib.import_module("awaited_k")
    finder.when_imported("awaited_l", lambda _module: None)
    importlib.import_module("awaited_l")
    assert seen == [1]


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
