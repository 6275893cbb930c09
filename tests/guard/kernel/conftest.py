"""Trees of kernel files for cases that nobody recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from guard.kernel.reader import Reader

Tree: TypeAlias = Mapping[str, str]
"""File contents by path."""

Grow: TypeAlias = Callable[[Tree], Reader]


@pytest.fixture
def grow(tmp_path: Path) -> Grow:
    """Make the files of a tree and a reader that has the tree as its root."""

    def make(tree: Tree) -> Reader:
        for path, text in tree.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return Reader(str(tmp_path))

    return make
