"""Servers behind `oomguard run`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.guard.hosts import environment

RUN: Final = [sys.executable, "-m", "guard.cli", "run", "--"]
READY: Final = "ready"


@contextlib.contextmanager
def started(command: list[str], shared: Path, *, before: list[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a server that prints `ready`, in a process group of its own, which is killed afterwards.

    Args:
        command: the server's.
        shared: the shared directory.
        before: words in front of the runner's command.
    """
    process = subprocess.Popen(
        [*(before or []), *RUN, *command],
        env={**environment(shared), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().split()[:1] == [READY]
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
