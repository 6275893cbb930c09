"""Ends by killers that are programs and act on the whole node's memory: played only where the node is ours."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.cases.stage import OOMGUARD, Stage, Way
from tests.lab.cases.verdicts import ended
from tests.lab.kit.cgroups import Limits, NotOfferedError
from tests.lab.kit.places import ALONE
from tests.lab.kit.wait import until


def case_earlyoom(stage: Stage) -> None:
    """Debian's earlyoom terminates the model: external_kill, not the kernel's doing; by its log userspace_oom."""
    log = stage.folder / "earlyoom.log"
    load = f"crowd_out percent=20 when={stage.cue('crowded')}"
    with _earlyoom(log), stage.model("crowded", load, way=Way(limits=Limits())) as model:
        stage.give_cue(model)
        incident = ended(stage, model, "external_kill")
        assert incident["fields"]["signal"] == "SIGTERM", incident
        until(lambda: "sending SIGTERM to process" in log.read_text(), 10, "earlyoom to say so")
    explained = subprocess.run([OOMGUARD, "explain", "--json", str(log)], capture_output=True, check=True)
    (told,) = json.loads(explained.stdout)["incidents"]
    assert told["class"] == "userspace_oom", told
    assert told["fields"]["killer"] == "earlyoom", told


@contextmanager
def _earlyoom(log: Path) -> Iterator[None]:
    """Run it with thresholds at which the node still has room for the sidecar's own code, and stop it."""
    if not ALONE:
        raise NotOfferedError("earlyoom looks at the node's memory: played in the machine alone")
    program = shutil.which("earlyoom")
    if program is None:
        raise NotOfferedError("earlyoom is not installed: apt-get install earlyoom")
    with log.open("wb") as output, subprocess.Popen([program, "-m", "30,10"], stdout=output, stderr=output) as killer:
        try:
            until(lambda: "mem avail" in log.read_text(), 20, "earlyoom to have started")
            yield
        finally:
            killer.terminate()
            killer.wait()
