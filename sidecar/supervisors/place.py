"""Where we run, told by our own mounts: which container of which pod, or which container of an engine.

The kubelet binds a file of its own below `pods/UID/containers/NAME/` as the termination message; Docker and Podman
bind `containers/ID/hostname` and `overlay-containers/ID/userdata/hostname` (moby daemon/container_operations_unix.go,
libpod/container_internal_linux.go). The root field of mountinfo(5) shows these paths, from below their file system.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from guard.kernel import mountinfo
from guard.model import Unknown

_POD: Final = re.compile(r"/pods/([0-9a-f]{8}[-0-9a-f]{1,40})/containers/([a-z0-9][-a-z0-9]{0,62})/[^/]+$")
_ENGINE: Final = re.compile(r"/(?:overlay-|vfs-|btrfs-|zfs-)?containers/([0-9a-f]{64})/(?:userdata/)?hostname$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Ourselves, as a supervisor knows us. None: not told."""

    pod_uid: str | None = None
    container_name: str | None = None
    container_id: str | None = None


def place_of(data: bytes) -> Place:
    """Read our own /proc/self/mountinfo."""
    mounts = mountinfo.parse(data, "/proc/self/mountinfo")
    roots = () if isinstance(mounts, Unknown) else tuple(mount.root for mount in mounts.value)
    pod = next((found for root in roots if (found := _POD.search(root)) is not None), None)
    engine = next((found for root in roots if (found := _ENGINE.search(root)) is not None), None)
    return Place(
        pod_uid=None if pod is None else pod[1],
        container_name=None if pod is None else pod[2],
        container_id=None if engine is None else engine[1],
    )
