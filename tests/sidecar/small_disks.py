"""Disks that fill: a tmpfs of a few MiB for the length of a test."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def small_disk(where: Path, mebibytes: int) -> Iterator[Path]:
    """Make the folder and mount an empty disk on it (needs root)."""
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", where], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)


def remount(disk: Path, mode: str) -> None:
    """Make the disk `ro` or `rw`."""
    subprocess.run(["mount", "-o", f"remount,{mode}", disk], check=True)


def fill(disk: Path) -> Path:
    """Take every free byte; give the file to remove to give them back."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast
