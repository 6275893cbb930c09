"""A kernel, or somebody with root, that takes the pressure files away: said as such, never told as no pressure.

Kernels 6.1 and later have cgroup.pressure (kernel/cgroup/cgroup.c, cgroup_pressure_write): 0 hides the three files of a
group. A descriptor that was open before then reads ENODEV, for good, and nobody new finds the files.
"""

from __future__ import annotations

from typing import Final

from tests.lab.cases.stage import SMALL, Document, Model, Stage
from tests.lab.kit.cgroups import Cgroup, NotOfferedError
from tests.lab.kit.loads import make_file
from tests.lab.kit.wait import PACE, until

_FILES: Final = ("memory_pressure", "io_pressure", "cpu_pressure")


def case_pressure_switched_off_beside_a_living_model(stage: Stage) -> None:
    """Files that vanish while they are read are unknown from then on, the health page says so, the model is well."""
    with stage.model("switched-off", "beat") as model:
        until(lambda: "value" in _own(stage, model)["memory_pressure"], 30, "pressure to be read")
        _switch_off(model.group)
        until(lambda: "unknown" in _own(stage, model)["memory_pressure"], 30, "pressure to be unknown")
        until(lambda: _status(stage, model)["cannot_tell"], 30, "a detector to say that it cannot tell")
        judgement = _status(stage, model)["judgement"]
        assert any("memory.pressure" in reason for reason in judgement["degraded"]), judgement
        _is_unknown(stage, model)


def case_pressure_off_from_the_start(stage: Stage) -> None:
    """Without the files reclaim is told by pages that are read again, and the server stays alive."""
    if PACE > 1:
        raise NotOfferedError("an emulated processor reads too few pages again for them to count")
    weights = str(stage.folder / "weights")
    make_file(weights, 120)
    with stage.group.child("no-pressure", SMALL) as group:
        _switch_off(group)
        model = stage.run("no-pressure", group, f"thrash path={weights} threads=2")
        stage.wait_seen(model)
        (found,) = until(lambda: _status(stage, model)["findings"], 60, "reclaim to be found")
        assert (found["detector"], "read again" in found["text"]) == ("reclaim", True), found
        until(lambda: _status(stage, model)["judgement"]["state"] == "reclaiming", 30, "the judge to take it so")
        _is_unknown(stage, model)


def _switch_off(group: Cgroup) -> None:
    switch = group.file("cgroup.pressure")
    if not switch.exists():
        raise NotOfferedError("cgroup.pressure: kernel 6.1 and later")
    switch.write_text("0")


def _status(stage: Stage, model: Model) -> Document:
    status: Document = stage.get("/status")["models"][model.name]
    return status


def _own(stage: Stage, model: Model) -> Document:
    """Give the model's own level, once a full sample of it is there."""
    own: Document = stage.wait_seen(model)["sample"]["levels"][0]["memory"]
    return own


def _is_unknown(stage: Stage, model: Model) -> None:
    own = _own(stage, model)
    assert all("unknown" in own[name] for name in _FILES), own
    assert "value" in own["current_bytes"], own
    assert _status(stage, model)["judgement"]["live"]
