"""What this kernel and these rights offer the lab, found by trying, and said in one line."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


class Mode(Enum):
    """How the memory controller is mounted."""

    HYBRID = "memory on cgroup v1, the v2 tree beside it"
    V2 = "pure cgroup v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """`mode` is None when no cgroup can be made here; `reason` then says why."""

    mode: Mode | None
    reason: str
    psi: bool = False
    read_throttle: str | None = None  # "MAJ:MIN" of the disk under the temporary directory, if it can be throttled

    def __str__(self) -> str:
        """Say it in one line."""
        if self.mode is None:
            return f"lab: nothing to work with: {self.reason}"
        extras = f"PSI {'on' if self.psi else 'off'}, read throttle {self.read_throttle or 'none'}"
        return f"lab: {self.mode.value}, {extras}, kernel {os.uname().release}"


@cache
def offer() -> Offer:
    """Find out once what can be done here."""
    if os.geteuid() != 0:
        return Offer(mode=None, reason="not root: cgroups with limits cannot be made")
    mode = _mode()
    if mode is None:
        return Offer(mode=None, reason=f"no memory controller under {ROOT}, neither v2 nor v1")
    refused = _try_mkdir(ROOT if mode is Mode.V2 else ROOT / "memory")
    if refused:
        return Offer(mode=None, reason=refused)
    psi_tree = ROOT if mode is Mode.V2 else ROOT / "unified"
    return Offer(mode=mode, reason="", psi=(psi_tree / "memory.pressure").exists(), read_throttle=_disk(mode))


def _mode() -> Mode | None:
    controllers = ROOT / "cgroup.controllers"
    if controllers.exists():
        return Mode.V2 if "memory" in controllers.read_text().split() else None
    return Mode.HYBRID if (ROOT / "memory" / "memory.usage_in_bytes").exists() else None


def _try_mkdir(tree: Path) -> str:
    """Return why no usable group can be made under `tree`, or an empty string."""
    probe = tree / f"og-lab-{os.getpid()}-offer"
    try:
        if (tree / "cgroup.subtree_control").exists():
            (tree / "cgroup.subtree_control").write_text("+memory")
        probe.mkdir()
    except OSError as error:
        return f"{tree} cannot be used: {error.strerror}"
    probe.rmdir()
    return ""


def _disk(mode: Mode) -> str | None:
    device = Path(tempfile.gettempdir()).stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    if not Path(f"/sys/dev/block/{number}").exists():
        return None
    if mode is Mode.V2:
        return number if "io" in (ROOT / "cgroup.controllers").read_text().split() else None
    return number if (ROOT / "blkio" / "blkio.throttle.read_iops_device").exists() else None
