"""How long before the kill a growing model is warned of, and that what is harmless is not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.sidecar import loads
from bench.sidecar.figures import Figure, Goal, Part
from bench.sidecar.stage import Stage
from tests.lab.cases.stage import Document
from tests.lab.kit import loads as lab_loads
from tests.lab.kit.cgroups import Limits
from tests.lab.kit.offer import Mode

MIB: Final = 1 << 20
LIMIT_MIB: Final = 256
LIMIT: Final = Limits(memory_max_bytes=LIMIT_MIB * MIB)
GOAL_SECONDS: Final = {20: 8.0, 50: 3.0, 200: 0.7}
"""By MiB of growth a second."""
CHECKPOINT_MIB: Final = 160
FILL_MIB: Final = 600
_AFTER_LOAD_SECONDS: Final = 3.0
_ABOUT_LIMIT: Final = ("time_to_limit", "load_fit")
_USAGE: Final = {Mode.V2: "memory.current", Mode.HYBRID: "memory.usage_in_bytes"}


def measure(harmless_seconds: float) -> Iterator[Part]:
    """Let three models grow to death, one fill the page cache for so long, and one load what fits."""
    with Stage() as stage:
        grown = tuple(_growth(stage, rate, goal) for rate, goal in GOAL_SECONDS.items())
        harmless = (_page_cache(stage, harmless_seconds), _load_that_fits(stage))
    yield Part("leads", f"Warning before the kill, from a limit of {LIMIT_MIB} MiB", (*grown, *harmless))


def _growth(stage: Stage, rate: int, goal_seconds: float) -> Figure:
    with stage.watched(f"grow-{rate}", loads.command("grow", str(rate)), LIMIT) as model:
        began = time.monotonic()
        loads.start(model.pid)
        died = model.wait_end(120)
        warned = [one["monotonic_s"] for one in stage.warnings(model) if _about_limit(one)]
    return Figure(
        name=f"lead_at_{rate}_mib_per_second",
        value=died - min(warned) if warned else None,
        unit="s",
        goal=Goal(at_least=goal_seconds),
        beside={"growth_lasted": died - began},
    )


def _page_cache(stage: Stage, seconds: float) -> Figure:
    """A file larger than the limit, written and read again and again: usage stands at the limit."""
    path = stage.shared / "cached"
    command = lab_loads.command(f"cache path={path} size={FILL_MIB}")
    with stage.watched("cache", command, LIMIT) as model:
        time.sleep(seconds)
        usage = int(model.group.file(_USAGE[model.group.mode]).read_text())
        warnings = stage.warnings(model)
    path.unlink(missing_ok=True)
    return _harmless("warnings_on_page_cache_fill", warnings, {"usage_mib": usage / MIB})


def _load_that_fits(stage: Stage) -> Figure:
    """A checkpoint that is copied into memory and fits, marked as a load."""
    path = stage.shared / "checkpoint"
    lab_loads.make_file(str(path), CHECKPOINT_MIB)
    path.chmod(0o644)
    with stage.watched("load", loads.command("load", str(path)), LIMIT) as model:
        loads.start(model.pid)
        time.sleep(CHECKPOINT_MIB / loads.LOAD_MIB_PER_SECOND + _AFTER_LOAD_SECONDS)
        anonymous = _anonymous_mib(model.pid)
        warnings = stage.warnings(model)
    path.unlink()
    return _harmless("warnings_on_a_load_that_fits", warnings, {"anonymous_mib": anonymous})


def _harmless(name: str, warnings: list[Document], beside: dict[str, float]) -> Figure:
    about_limit = [one for one in warnings if _about_limit(one)]
    others = ", ".join(sorted({one["fields"]["detector"] for one in warnings if not _about_limit(one)}))
    return Figure(
        name=name, value=len(about_limit), unit="", goal=Goal(at_most=0), beside={**beside, "others": others or "none"}
    )


def _about_limit(warning: Document) -> bool:
    return warning["fields"].get("detector") in _ABOUT_LIMIT


def _anonymous_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024
