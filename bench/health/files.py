"""The files that servers read: raw weights, and a small checkpoint of each format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

BIG_MIB: Final = 300


def make_big(folder: Path, mib: int = BIG_MIB) -> Path:
    """Make the file of raw weights, once."""
    path = folder / "weights.big"
    if not path.exists():
        part = folder / "part"
        with part.open("wb") as out:
            out.writelines(os.urandom(1 << 20) for _ in range(mib))
        part.chmod(0o644)
        part.rename(path)
    return path


def make_files(folder: Path) -> None:
    """Make all of them, once."""
    folder.mkdir(parents=True, exist_ok=True)
    make_big(folder)
    checkpoints = folder / "checkpoints"
    if (checkpoints / "ready").exists():
        return
    from bench.preflight.checkpoints import write_torch, write_transformers

    checkpoints.mkdir(exist_ok=True)
    write_torch(checkpoints)
    write_transformers(checkpoints)
    for path in checkpoints.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)  # the server is another user
    (checkpoints / "ready").touch()


def the_files(folder: Path) -> Mapping[str, Path]:
    """Name those that were made."""
    return {"big": folder / "weights.big", "checkpoints": folder / "checkpoints"}
