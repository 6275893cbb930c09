"""Volumes that are full or read-only: an ordinary error with advice, never a signal, and nothing left behind."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.lab.kit.places import CHECKOUT, PYTHON

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.getuid() != 0, reason="not root: nothing can be mounted")]

_MAKE_MANY = """
import sys
from pathlib import Path
from guard.box.writer import BoxAbout, BoxError, BoxWriter
from guard.model import LifeId
directory = Path(sys.argv[1])
made = []
for number in range(3):
    try:
        made.append(BoxWriter.create(str(directory), LifeId("b", 1, 1, f"s{number}"), BoxAbout(None, "1", "c")))
    except BoxError as error:
        print(len(made), error.errno, error.strerror)
        break
for box in made:
    box.beat("still works")
print(sorted(path.name for path in directory.iterdir()))
"""


def _run(mount: str) -> list[str]:
    """Make boxes below /mnt, mounted by a script in a mount namespace of its own."""
    script = f'set -e; {mount}; exec "$@"'
    apart = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script, "volume"]
    done = subprocess.run(
        [*apart, PYTHON, "-c", _MAKE_MANY, "/mnt"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # -7 would be SIGBUS
    return done.stdout.splitlines()


def test_a_full_volume_says_so_and_keeps_the_boxes_it_has() -> None:
    """On a tmpfs of 64 KiB the first box fits; the second is refused with ENOSPC and advice, and leaves no file."""
    said, left = _run("mount -t tmpfs -o size=64k none /mnt")
    assert said.startswith("1 28 no black box in /mnt: No space left on device; the volume is full")
    assert left == "['s0.box']"


def test_a_read_only_volume_says_so() -> None:
    """EROFS comes with the advice to mount it writable."""
    said, left = _run("mount -t tmpfs -o ro none /mnt")
    assert said.startswith("0 30 no black box in /mnt: Read-only file system; the volume is read-only: mount")
    assert left == "[]"
