"""What a cgroup path says of its owner: pod, container and quality of service, in the shapes of every runtime."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_POD: Final = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
)
_CONTAINER: Final = re.compile(r"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathWords:
    """What one path names; None where it does not. `outer_container_id`: a container around a nested node."""

    pod_uid: str | None = None
    container_id: str | None = None
    outer_container_id: str | None = None
    qos: str | None = None


def words_of(path: str) -> PathWords:
    """Read a cgroup path such as /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/<id>."""
    pods = list(_POD.finditer(path))
    after = pods[-1].end() if pods else 0
    ids = [(found.start(), found[1]) for found in _CONTAINER.finditer(path)]
    inner = [name for at, name in ids if at >= after]
    outer = [name for at, name in ids if at < after] + inner[:-1]
    return PathWords(
        pod_uid=pods[-1][1].replace("_", "-") if pods else None,
        container_id=inner[-1] if inner else None,
        outer_container_id=outer[-1] if outer else None,
        qos=_qos(path),
    )


def _qos(path: str) -> str | None:
    if "kubepods" not in path:
        return None
    return "besteffort" if "besteffort" in path else "burstable" if "burstable" in path else "guaranteed"
