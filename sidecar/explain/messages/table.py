"""All tables of messages as one. Order matters: harmless words first, crashes last."""

from __future__ import annotations

from typing import Final

from sidecar.explain.messages import batch, containers, crashes, gpu, gpu_frameworks, harmless, host, killers, systemd
from sidecar.explain.patterns import Pattern

ALL: Final[tuple[Pattern, ...]] = (
    *harmless.PATTERNS,
    *killers.PATTERNS,
    *host.PATTERNS,
    *gpu.PATTERNS,
    *gpu_frameworks.PATTERNS,
    *batch.PATTERNS,
    *containers.PATTERNS,
    *systemd.PATTERNS,
    *crashes.PATTERNS,
)
