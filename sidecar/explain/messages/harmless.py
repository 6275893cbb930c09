"""Words about memory that report no failure: advice, fallbacks, pools of slots that a server handles itself."""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.patterns import Pattern
from sidecar.explain.values import Role
from sidecar.verdict.values import EndClass

_HEDGED: Final = re.compile(
    r"\b(?:if|may|might|could|can|avoid(?:s|ing)?|prevent(?:s|ing)?|in case|when|to reduce|risk of|chance of|potential"
    r"|handles?|without)\b[^.;]{0,80}?\b(?:out[ -]of[ -]memory|OOM)\b",
    re.IGNORECASE,
)
_FACTS: Final = re.compile(
    r"tried to allocate|Killed process|Failed to CUDA|requested buffer of size|oom-kill event|Error code \d",
    re.IGNORECASE,
)


def _row(
    words: tuple[str, ...], start: re.Pattern[str], summary: str, unless: re.Pattern[str] | None = None
) -> Pattern:
    return Pattern(
        subject="harmless",
        end_class=EndClass.UNKNOWN,
        role=Role.CONTEXT,
        words=words,
        start=start,
        summary=summary,
        unless=unless,
    )


PATTERNS: Final = (
    _row(
        ("memoryerror",),
        re.compile(r"^\s{0,64}except\b.{0,200}MemoryError\b"),
        "a line of a program that handles such a failure",
    ),
    _row(
        ("exec_die",),
        re.compile(r"\bcontainer exec_die\b"),
        "a command that was run beside the container's own process ended",
    ),
    _row(
        ("exit code",),
        re.compile(r"^(?:NOTE|HINT|TIP)\b.{0,200}\(exit code -?\d{1,3}\)", re.IGNORECASE),
        "advice about an exit code, not an exit",
    ),
    _row(
        ("not a failure",),
        re.compile(r"caller indicates that this is not a failure"),
        "an allocation that failed was retried in another way; the allocator says that this is no failure",
    ),
    _row(
        ("out of memory", "out-of-memory", "oom"), _HEDGED, "advice about running out of memory, not a failure", _FACTS
    ),
    _row(
        ("mlock",),
        re.compile(r"failed to mlock \d+-byte buffer"),
        "memory could not be locked against swapping (ulimit -l); the server goes on without",
    ),
    _row(
        ("falling back", "retract", "preempted because", "kv cache pool is full"),
        re.compile(
            r"(?:pinned|CUDA) memory.{0,120}falling back|KV cache pool is full\. Retract|Retract requests"
            r"|preempted because there is not enough KV cache"
        ),
        "the server met a full pool and went on in another way",
    ),
    _row(
        ("callbacks suppressed",),
        re.compile(r"^slab_out_of_memory: \d+ callbacks suppressed"),
        "kernel slabs could not grow",
    ),
)
