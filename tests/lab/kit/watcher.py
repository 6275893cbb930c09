"""Who outlives a demo or a benchmark that is killed with SIGKILL, and removes the cgroups that it left behind.

python -m tests.lab.kit.watcher PID
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys

from tests.lab.kit.cgroups import sweep
from tests.lab.kit.places import CHECKOUT, PYTHON


def start() -> None:
    """Have this process watched. The watcher is deaf to Ctrl-C and ends right after this process, however that ends."""
    subprocess.Popen(
        [PYTHON, "-m", "tests.lab.kit.watcher", str(os.getpid())],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main(pid: int) -> None:
    """Wait for the end of a process, then sweep."""
    with contextlib.suppress(ProcessLookupError):  # it ended before
        ended = select.poll()
        ended.register(os.pidfd_open(pid), select.POLLIN)
        ended.poll()
    sweep()


if __name__ == "__main__":
    main(int(sys.argv[1]))
