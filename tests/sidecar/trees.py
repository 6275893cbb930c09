"""A directory tree from one nested dict, for readers with a root of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def build(root: Path, tree: Mapping[str, Any]) -> Path:
    """Make files (text or bytes) and folders (mappings) below `root`; a name may hold slashes."""
    for name, content in tree.items():
        path = root / name.lstrip("/")
        if isinstance(content, Mapping):
            path.mkdir(parents=True, exist_ok=True)
            build(path, content)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else str(content).encode())
    return root
