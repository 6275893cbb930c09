"""Ends by killers that are programs and act on the whole node's memory: played only where the node is ours."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.kit.cgroups import NotOfferedError
from tests.lab.kit.places import ALONE
from tests.lab.kit.wait import until


@contextmanager
def _earlyoom(log: Path) -> Iterator[None]:
    """Run it with Debian's defaults (10 and 5 %), and stop it."""
    if not ALONE:
        raise NotOfferedError("earlyoom looks at the node's memory: played in the machine alone")
    program = shutil.which("earlyoom")
    if program is None:
        raise NotOfferedError("earlyoom is not installed: apt-get install earlyoom")
    with log.open("wb") as output, subprocess.Popen([program], stdout=output, stderr=output) as killer:
        try:
            until(lambda: "mem avail" in log.read_text(), 20, "earlyoom to have started")
            yield
        finally:
            killer.terminate()
            killer.wait()
