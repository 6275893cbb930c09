"""Ends by the kernel's OOM killer that `ends` does not play: other programs, other limits, the whole node."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.lab.cases.stage import Stage, Way
from tests.lab.cases.verdicts import ended, supporting
from tests.lab.kit.cgroups import MIB, Limits, NotOfferedError
from tests.lab.kit.offer import Mode
from tests.lab.kit.places import ALONE
from tests.lab.kit.wait import PACE, until

_WORKING_SET: Final = Path("/sys/kernel/mm/lru_gen/min_ttl_ms")
SHM: Final[Mapping[str, int]] = {"/dev/shm": 300}


def case_one_allocation_far_past_the_limit(stage: Stage) -> None:
    """All of it at once, between two ticks: cgroup_oom at the own level, as the counters tell it afterwards."""
    with stage.model("gulp", f"gulp size=400 when={stage.cue('gulp')}") as model:
        stage.give_cue(model)
        incident = ended(stage, model, "cgroup_oom", "high")
        assert incident["level"] == model.group.path


def case_program_without_python(stage: Stage) -> None:
    """`tail /dev/zero` knows nothing of a guard: cgroup_oom at the own level, by the kernel's counters alone."""
    script = f"until [ -e {stage.cue('tail')} ]; do sleep 0.1; done; exec tail /dev/zero"
    with stage.model("tail", way=Way(command=("sh", "-c", script))) as model:
        stage.give_cue(model)
        incident = ended(stage, model, "cgroup_oom", "high")
        assert incident["level"] == model.group.path
        assert any("oom_kill" in text for text in supporting(incident)), incident


def case_files_in_shared_memory_past_the_limit(stage: Stage) -> None:
    """Files in a roomy /dev/shm count against the limit: cgroup_oom, not a full /dev/shm."""
    way = Way(small=SHM)
    with stage.model("shm-limit", f"fill path=/dev/shm/cache when={stage.cue('shm-limit')}", way=way) as model:
        stage.give_cue(model)
        incident = ended(stage, model, "cgroup_oom", "high")
        assert incident["level"] == model.group.path


def case_growth_past_a_limit_that_was_lowered(stage: Stage) -> None:
    """An in-place resize takes room away: cgroup_oom, and the limit that is named is the new one."""
    cue = stage.cue("lowered")
    with stage.model(
        "lowered", f"grow rate=60 when={cue}", way=Way(limits=Limits(memory_max_bytes=400 * MIB))
    ) as model:
        stage.wait_seen(model)
        model.group.set(Limits(memory_max_bytes=64 * MIB))
        stage.give_cue(model)
        incident = ended(stage, model, "cgroup_oom", "high")
        assert incident["level"] == model.group.path
        assert incident["fields"]["limit_bytes"] == 64 * MIB


def case_limit_lowered_below_what_is_held(stage: Stage) -> None:
    """On v2 the write of the limit kills at once: cgroup_oom at the own level. v1 refuses the write (EBUSY)."""
    if stage.group.mode is not Mode.V2:
        raise NotOfferedError("cgroup v1 refuses a limit below what is held")
    way = Way(limits=Limits(memory_max_bytes=200 * MIB))
    with stage.model("squeezed", "gulp size=80", way=way) as model:
        until(lambda: stage.wait_seen(model) and _anonymous(stage, model.name) > 80 * MIB, 30, "it to hold 80 MiB")
        model.group.set(Limits(memory_max_bytes=60 * MIB))
        incident = ended(stage, model, "cgroup_oom", "high")
        assert incident["level"] == model.group.path


def case_whole_node_out_of_memory(stage: Stage) -> None:
    """No limit anywhere and no memory left: global_oom, and no cgroup is blamed."""
    if not ALONE:
        raise NotOfferedError("it takes all memory of the node: played in the machine alone")
    load = f"gulp size=4000 score=1000 when={stage.cue('node')}"
    with _working_set_kept(), stage.model("node", load, way=Way(limits=Limits())) as model:
        stage.give_cue(model)
        incident = ended(stage, model, "global_oom")
        assert incident["level"] is None
        assert model.wait() == -signal.SIGKILL


@contextlib.contextmanager
def _working_set_kept() -> Iterator[None]:
    """Let the kernel kill rather than reclaim what was used just now (multi-gen LRU, 6.1 and later).

    With the usual 0 a small node without swap reads its programs from the disk again and again for minutes first.
    """
    before = _WORKING_SET.read_text()
    _WORKING_SET.write_text(str(round(1000 * PACE)))
    try:
        yield
    finally:
        _WORKING_SET.write_text(before)


def case_killed_by_hand_after_a_neighbours_oom(stage: Stage) -> None:
    """A neighbour of another model is OOM killed, then a kill -9: external_kill, not the neighbour's cause."""
    with (
        stage.model("neighbour", f"grow rate=300 when={stage.cue('neighbour')}") as neighbour,
        stage.model("bystander", "sleep") as bystander,
    ):
        stage.wait_seen(bystander)
        stage.give_cue(neighbour)
        ended(stage, neighbour, "cgroup_oom")
        os.kill(bystander.main_pid(), signal.SIGKILL)
        ended(stage, bystander, "external_kill")


def _anonymous(stage: Stage, name: str) -> int:
    sample = stage.get("/status")["models"][name]["sample"]
    return int(sample["levels"][0]["memory"]["stat"]["value"]["anon"])
